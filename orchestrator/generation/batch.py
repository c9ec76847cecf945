"""Generate the completions of several prompts together, from the first token to the last."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orchestrator.generation import forward, sampling
from orchestrator.generation.params import Sampling


class Signal(Enum):
    """What the engine tells a batch between two tokens."""

    CONTINUE = auto()
    REFILL = auto()
    """The weights changed: read all tokens again."""
    ABORT = auto()


@dataclass(frozen=True, kw_only=True)
class Job:
    """Some completions of one prompt."""

    prompt: Sequence[int]
    sampling: Sampling
    seed: int
    prompt_index: int
    """Place of the prompt in its request; with `seed` and the choice it names a row's random stream."""
    choices: range
    stop_ids: tuple[int, ...]
    """Every id that ends a row; the id stays in the completion."""
    num_top: int = 0
    """Likeliest tokens to report per position besides the drawn one."""
    prompt_top: int | None = None
    """Score the prompt too, with that many likeliest tokens per position."""


@dataclass(frozen=True)
class Row:
    """One completion. `top` has, per token, the likeliest (id, log-prob) pairs; empty when none were asked for."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    top: list[list[tuple[int, float]]]


class _Record:
    """What the rows of a batch have produced so far."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        counts = torch.tensor([len(job.choices) for job in jobs])
        self.job_of = torch.repeat_interleave(torch.arange(len(jobs)), counts)
        self.limits = torch.tensor([job.sampling.max_tokens for job in jobs])[self.job_of]
        widest = max(len(job.stop_ids) for job in jobs)
        stops = [[*job.stop_ids, *[-1] * (widest - len(job.stop_ids))] for job in jobs]
        self.stops = torch.tensor(stops, dtype=torch.long).reshape(len(jobs), widest)[self.job_of]
        rows = len(self.job_of)
        self.tokens = torch.zeros(rows, int(self.limits.max()), dtype=torch.long)
        self.logprobs = torch.zeros(rows, int(self.limits.max()))
        self.lengths = torch.zeros(rows, dtype=torch.long)
        self.stopped = torch.zeros(rows, dtype=torch.bool)
        self.remaining = counts
        self.num_top = max(job.num_top for job in jobs)
        self.tops: list[list[list[tuple[int, float]]]] = [[] for _ in range(rows)]

    def add(self, rows: Tensor, tokens: Tensor, logprobs: Tensor, table: Tensor, step: int) -> Tensor:
        """Store one token for each of the given rows; returns which of them end with it, [rows] bool."""
        self.tokens[rows, step] = tokens
        self.logprobs[rows, step] = logprobs
        self.lengths[rows] = step + 1
        stopped = (tokens[:, None] == self.stops[rows]).any(dim=-1)
        self.stopped[rows] = stopped
        if self.num_top:
            values, ids = table.topk(min(self.num_top, table.shape[-1]), dim=-1)
            for row, row_ids, row_values in zip(rows.tolist(), ids.tolist(), values.tolist(), strict=True):
                self.tops[row].append(list(zip(row_ids, row_values, strict=True)))
        ended = stopped | (self.limits[rows] == step + 1)
        self.remaining -= torch.bincount(self.job_of[rows[ended]], minlength=len(self.remaining))
        return ended

    def row(self, row: int, num_top: int) -> Row:
        length = int(self.lengths[row])
        full = length == int(self.limits[row])
        reason = "stop" if self.stopped[row] else "length" if full else "abort"
        top = [entries[:num_top] for entries in self.tops[row]] if num_top else []
        return Row(self.tokens[row, :length].tolist(), self.logprobs[row, :length].tolist(), reason, top)


class _Batch:
    """The rows still being generated. Finished rows are dropped once they are half of the batch."""

    def __init__(self, model: Any, jobs: Sequence[Job]) -> None:
        self.model, self.jobs, self.record = model, jobs, _Record(jobs)
        copies = [len(job.choices) for job in jobs]
        self.context, self.logits = forward.prefill(model, [job.prompt for job in jobs], copies)
        self.alive = torch.arange(len(self.record.job_of))
        self.running = torch.ones(len(self.alive), dtype=torch.bool)
        keys = [sampling.row_keys(job.seed, job.prompt_index, job.choices) for job in jobs]
        settings = [job.sampling for job in jobs for _ in job.choices]
        self.settings = sampling.row_settings(settings, np.concatenate(keys))
        self.seen = self._prompt_tokens() if self.settings.repetition_penalty is not None else None

    def _prompt_tokens(self) -> Tensor:
        seen = torch.zeros(len(self.jobs), self.logits.shape[-1], dtype=torch.bool)
        for row, job in enumerate(self.jobs):
            seen[row, list(job.prompt)] = True
        return seen[self.record.job_of]

    def draw(self, step: int) -> Tensor:
        """Draw and record the next token of every row, [rows]."""
        logits = sampling.processed_logits(self.logits, self.settings, self.seen)
        tokens, logprobs, table = sampling.draw(logits, self.settings, step)
        here = self.running.nonzero()[:, 0]
        if logprobs[here].isnan().any():
            raise FloatingPointError("the model's log-probs are NaN")
        ended = self.record.add(self.alive[here], tokens[here], logprobs[here], table[here], step)
        self.running[here[ended]] = False
        if self.seen is not None:
            self.seen[torch.arange(len(tokens)), tokens] = True
        return tokens

    def advance(self, tokens: Tensor, *, refill: bool) -> None:
        """Compute the logits that follow `tokens`; `refill` reads every row again from its first token."""
        if refill or int(self.running.sum()) * 2 <= len(self.running):
            tokens = self._compact(tokens)
        if refill:
            self.context, self.logits = forward.prefill(self.model, self._sequences(), [1] * len(self.alive))
        else:
            self.logits = forward.extend(self.model, self.context, tokens, self.running)

    def _compact(self, tokens: Tensor) -> Tensor:
        rows = self.running.nonzero()[:, 0]
        self.context.keep(rows)
        self.alive, self.running = self.alive[rows], self.running[rows]
        self.settings = self.settings.select(rows)
        self.seen = None if self.seen is None else self.seen[rows]
        return tokens[rows]

    def _sequences(self) -> list[list[int]]:
        record = self.record
        return [
            [*self.jobs[int(record.job_of[row])].prompt, *record.tokens[row, : int(record.lengths[row])].tolist()]
            for row in self.alive.tolist()
        ]


def generate(
    model: Any,
    jobs: Sequence[Job],
    between_tokens: Callable[[], Signal],
    deliver: Callable[[int, list[Row]], None],
) -> None:
    """Generate all completions of `jobs`; `deliver(index of the job, rows)` as soon as a job is complete.

    Raises FloatingPointError when the model yields NaN.
    """
    batch = _Batch(model, jobs)
    record, waiting = batch.record, set(range(len(jobs)))

    def hand_over(done: set[int]) -> None:
        for job in sorted(done):
            rows = (record.job_of == job).nonzero()[:, 0].tolist()
            deliver(job, [record.row(row, jobs[job].num_top) for row in rows])
        waiting.difference_update(done)

    for step in range(int(record.limits.max())):
        tokens = batch.draw(step)
        hand_over({job for job in waiting if not record.remaining[job]})
        if not waiting:
            return
        signal = between_tokens()
        if signal is Signal.ABORT:
            break
        batch.advance(tokens, refill=signal is Signal.REFILL)
    hand_over(set(waiting))
