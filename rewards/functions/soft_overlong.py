"""The soft overlong punishment: 0 while a completion is short enough, then down to -1 as it nears the limit.

With n tokens, M = max_length and C = cache: 0 for n <= M - C, (M - C - n) / C up to n = M, and -1 beyond. It is meant
to be added to a reward for correctness, so give it a weight beside one.

Units: tokens, counted from `completion_ids`.
Range: -1.0 to 0.0.
Source: DAPO (arXiv 2503.14476), equation 13.
"""

from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, PrepareError

PER_SAMPLE = True
INLINE = True
_LIMITS = {"max_length": 4, "cache": 2}
SELF_TEST = (
    Example(completion="short", columns={"completion_ids": [1, 2]}, params=_LIMITS, score=0.0),
    Example(completion="too long", columns={"completion_ids": [1, 2, 3, 4, 5]}, params=_LIMITS, score=-1.0),
)


def prepare(*, max_length: int | None = None, cache: int | None = None) -> None:
    """Raises PrepareError for limits that cannot be meant, or for none."""
    try:
        _limits(max_length, cache)
    except ValueError as error:
        raise PrepareError(str(error)) from error


def soft_overlong(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    completion_ids: Sequence[Sequence[int]],
    *,
    max_length: int | None = None,
    cache: int | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """-1.0 to 0.0. Raises ValueError unless 0 < cache <= max_length (both in tokens)."""
    limit, room = _limits(max_length, cache)
    return [max(-1.0, min(0.0, (limit - room - len(ids)) / room)) for ids in completion_ids]


def _limits(max_length: object, cache: object) -> tuple[int, int]:
    if type(max_length) is not int or type(cache) is not int or not 0 < cache <= max_length:
        raise ValueError(
            f"soft_overlong needs params.max_length and params.cache, whole numbers of tokens with "
            f"0 < cache <= max_length, not max_length={max_length!r} and cache={cache!r}"
        )
    return max_length, cache
