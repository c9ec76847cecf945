"""What is asked of the engine, and what becomes of it."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from orchestrator.generation import sampling
from orchestrator.generation.params import Sampling
from orchestrator.generation.score import PromptScores


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


@dataclass(frozen=True)
class Output:
    """What became of a job: its completions, and the scores of its prompt where they were asked for."""

    rows: list[Row]
    scores: PromptScores | None


@dataclass(eq=False)
class Pending:
    """A job that somebody waits for."""

    job: Job
    future: Future[Output]
    scores: PromptScores | None = None


@dataclass
class Counters:
    """Since the start; written by the worker thread only."""

    batches: int = 0
    """Times that waiting jobs were taken in together."""
    sequences: int = 0
    tokens: int = 0

    def reset(self) -> None:
        self.batches = self.sequences = self.tokens = 0


@dataclass(eq=False, slots=True)
class GrowingRow:
    """A completion under way."""

    job: Job
    key: np.uint64
    """Names its random stream."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    ended: bool = False

    def add(self, token: int, logprob: float) -> None:
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        self.ended |= token in self.job.stop_ids or len(self.token_ids) == self.job.sampling.max_tokens

    def sequence(self) -> list[int]:
        return [*self.job.prompt, *self.token_ids]

    def row(self) -> Row:
        stopped = self.ended and self.token_ids[-1] in self.job.stop_ids
        reason = "stop" if stopped else "length" if self.ended else "abort"
        return Row(self.token_ids, self.logprobs, reason, self.top)


@dataclass(frozen=True, eq=False)
class Flight:
    """A job under way."""

    job: Job
    rows: list[GrowingRow]

    @property
    def done(self) -> bool:
        return all(row.ended for row in self.rows)


def take_off(job: Job) -> Flight:
    """The job with empty rows."""
    keys = sampling.row_keys(job.seed, job.prompt_index, job.choices)
    return Flight(job, [GrowingRow(job, key) for key in keys])
