"""Held-out evaluation by what generates for the trainer: the same generation and the same reward as in training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from orchestrator.generation.client import Completion, Sampling
from orchestrator.training.prompts import Row, prompt_ids
from orchestrator.training.reward import Score, raw_rewards
from orchestrator.training.rollout import status_of
from orchestrator.training.trl_generation import Generates


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Means over the held-out rows: of the weighted total (`reward`, before a post-process hook) and each function."""

    sampled: dict[str, float | None]
    """At the training temperature, `evaluation.samples` completions a prompt."""
    greedy: dict[str, float | None]
    num_scored: int
    """Completions that the reward service scored for it."""


def evaluate(
    rows: Sequence[Row],
    *,
    tokenizer: PreTrainedTokenizerBase,
    generator: Generates,
    score: Score,
    sampling: Sampling,
    samples: int,
    seed: int,
    wants_ids: bool,
    template_kwargs: dict[str, Any] | None = None,
) -> Evaluation:
    """One sampled and one greedy pass. The seed is the same before and after training: only the weights differ."""
    prompts = [prompt_ids(tokenizer, row["prompt"], template_kwargs) for row in rows]
    sampled = _pass(rows, prompts, tokenizer, generator, score, sampling, samples, seed, wants_ids)
    greedy = _pass(rows, prompts, tokenizer, generator, score, replace(sampling, temperature=0.0), 1, seed, wants_ids)
    return Evaluation(sampled=sampled, greedy=greedy, num_scored=len(rows) * (samples + 1))


def _pass(
    rows: Sequence[Row],
    prompts: Sequence[list[int]],
    tokenizer: PreTrainedTokenizerBase,
    generator: Generates,
    score: Score,
    sampling: Sampling,
    n: int,
    seed: int,
    wants_ids: bool,
) -> dict[str, float | None]:
    found = generator.complete(prompts, n=n, sampling=sampling, seed=seed)
    repeated = [row for row in rows for _ in range(n)]
    completions = [completion for group in found for completion in group]
    texts = [_as_message(row, tokenizer, completion) for row, completion in zip(repeated, completions, strict=True)]
    columns = {key: [row[key] for row in repeated] for key in repeated[0] if key != "prompt"}
    if wants_ids:
        columns["completion_ids"] = [list(completion.token_ids) for completion in completions]
    reply = score(
        [row["prompt"] for row in repeated],
        texts,
        columns,
        [index // n for index in range(len(repeated))],
        [status_of(completion) for completion in completions],
        True,
    )
    return {"reward": _mean(raw_rewards(reply))} | {name: _mean(values) for name, values in reply.components.items()}


def _as_message(row: Row, tokenizer: PreTrainedTokenizerBase, completion: Completion) -> Any:
    """As TRL hands completions to rewards: a text for a text prompt, a list of one message for a conversation."""
    text = tokenizer.decode(completion.token_ids, skip_special_tokens=True)
    return text if isinstance(row["prompt"], str) else [{"role": "assistant", "content": text}]


def _mean(values: Sequence[float | None]) -> float | None:
    """Over what was scored; None when nothing was."""
    scored = [value for value in values if value is not None]
    return sum(scored) / len(scored) if scored else None
