"""Prompts as token ids, and the promise of `limits.prompt_length` kept before anything trains."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from orchestrator.data import DataError, describe
from orchestrator.facts import ModelFacts, model_facts, prompt_tokens
from orchestrator.schema import RunConfig

Row = dict[str, Any]
NAMED_ROWS = 5  # enough to find them in the file, few enough to read


class PromptTooLongError(ValueError):
    """Prompts above `limits.prompt_length`, counted and named."""


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase, prompt: Any, template_kwargs: dict[str, Any] | None = None
) -> list[int]:
    """Token ids of a prompt: text as it is, messages through the chat template, ready for the answer."""
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    rendered = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, tokenize=True, return_dict=True, **(template_kwargs or {})
    )
    return list(rendered["input_ids"])


def prompt_lengths(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], split: str, template_kwargs: dict[str, Any] | None = None
) -> list[int]:
    """Tokens of each row's prompt. Raises DataError, naming the row, where one cannot be tokenized."""
    return [_length(tokenizer, row, index, split, template_kwargs) for index, row in enumerate(rows)]


def remember_lengths(run: RunConfig, rows: Sequence[Row], lengths: Sequence[int]) -> None:
    """For later checks of the same rows and model. A cache that cannot be written costs them, not this run."""
    model = model_facts(run.model.name, run.model.revision)
    try:
        if isinstance(model, ModelFacts):
            prompt_tokens.write(run, describe(rows), model, Counter(lengths))
    except OSError as error:
        logging.getLogger(__name__).warning("the lengths of the prompts are not remembered: %s", error)


def within_limit(
    rows: Sequence[Row], lengths: Sequence[int], limit: int, policy: str, split: str
) -> tuple[list[Row], int]:
    """The rows whose prompt has at most `limit` tokens, and how many were dropped.

    With policy `error` a longer prompt raises PromptTooLongError; nothing is ever cut.
    """
    long = [index for index, length in enumerate(lengths) if length > limit]
    if long and policy == "error":
        named = ", ".join(f"row {i} has {lengths[i]}" for i in long[:NAMED_ROWS])
        raise PromptTooLongError(
            f"{len(long)} of {len(rows)} {split} prompts have more than limits.prompt_length = {limit} tokens ({named}"
            f"{', ...' if len(long) > NAMED_ROWS else ''}); the longest has {max(lengths)}. "
            f"fix: limits.prompt_length={max(lengths)}, or data.long_prompts=drop"
        )
    dropped = set(long)
    return [row for index, row in enumerate(rows) if index not in dropped], len(long)


def _length(
    tokenizer: PreTrainedTokenizerBase, row: Row, index: int, split: str, template_kwargs: dict[str, Any] | None
) -> int:
    try:
        return len(prompt_ids(tokenizer, row["prompt"], template_kwargs))
    except Exception as error:  # jinja2, tokenizers and templates raise what they like
        raise DataError(
            f"{split} row {index} cannot be tokenized: {type(error).__name__}: {error}. "
            f"Its prompt: {row['prompt']!r:.200}"
        ) from error
