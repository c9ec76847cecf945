"""How completions are asked for, so that every server means the same by it.

vLLM 0.32 draws choice i of every prompt of a request with the same noise (seed + i): equal prompts would get equal
completions, and the groups of a batch would err together. So each prompt is a request with a seed of its own there.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from orchestrator.generation.params import Sampling
from orchestrator.generation.replies import Completion, choices_of, completion_of

MOST_AT_ONCE = 128
"""Requests under way at the same time, a thread each; vLLM batches them."""

Answer = TypeVar("Answer")


def completion_body(
    named: Mapping[str, str], prompts: Sequence[Sequence[int]], n: int, sampling: Sampling, seed: int | None
) -> dict[str, Any]:
    """Everything is said, or vLLM would take it from the model's generation_config.json."""
    return {
        **named,
        "prompt": [list(prompt) for prompt in prompts],
        "n": n,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "stop_token_ids": list(sampling.stop_token_ids),
        "seed": seed,
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def completions_of(reply: Any, prompts: Sequence[Sequence[int]], n: int, max_tokens: int) -> list[list[Completion]]:
    """The answer to `completion_body`, [prompts][n]. Raises ValueError."""
    choices = choices_of(reply, len(prompts) * n)
    return [
        [completion_of(choice, prompt, max_tokens) for choice in choices[place * n : (place + 1) * n]]
        for place, prompt in enumerate(prompts)
    ]


def seed_of(seed: int, place: int) -> int:
    """Of one prompt of a call; so far from the others that adding the number of a choice does not reach them."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{place}".encode()).digest()[:6], "big")


def one_by_one(ask: Callable[[int], Answer], count: int) -> list[Answer]:
    """`ask` for 0 to count - 1, side by side; the first error ends it, and what was not yet asked is not."""
    with ThreadPoolExecutor(min(count, MOST_AT_ONCE)) as pool:
        try:
            return list(pool.map(ask, range(count)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
