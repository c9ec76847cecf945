"""What a caller asks of a generation server. No torch here: the client is used by processes that have none."""

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """How the tokens of one prompt are drawn; the neutral values leave the model's distribution untouched."""

    max_tokens: int
    """Most tokens per completion, the end-of-sequence token included."""
    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1 switches it off."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end a completion besides the model's end-of-sequence ids; the id itself is part of the completion."""


def sampling_problems(sampling: Sampling) -> Iterator[tuple[str, str]]:
    """(field, sentence) for every value outside the ranges that vLLM 0.32 takes as they are."""
    legal = (
        ("max_tokens", sampling.max_tokens >= 1, "at least 1"),
        # Between 0 and 0.01, vLLM would sample at 0.01 and say nothing.
        ("temperature", sampling.temperature == 0.0 or 0.01 <= sampling.temperature <= 2.0, "0 (greedy) or 0.01 to 2"),
        ("top_p", 0.0 < sampling.top_p <= 1.0, "in (0, 1]"),
        ("top_k", sampling.top_k >= -1, "0 (off) or at least 1"),
        ("min_p", 0.0 <= sampling.min_p <= 1.0, "in [0, 1]"),
        (
            "repetition_penalty",
            sampling.repetition_penalty > 0.0 and math.isfinite(sampling.repetition_penalty),
            "a finite number above 0",
        ),
    )
    for field, holds, wanted in legal:
        if not holds:
            yield field, f"{field} must be {wanted}, got {getattr(sampling, field)}"
