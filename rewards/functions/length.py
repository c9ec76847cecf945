"""1.0 for a completion of a length between min_length and max_length, and linearly less outside.

Below min_length it is n / min_length, so 0 for an empty completion. Above max_length it falls to 0 at twice max_length:
2 - n / max_length.

Units: `unit` is tokens (from `completion_ids`), characters, or words (parted by white space).
Range: 0.0 to 1.0.
Source: our own definition.
"""

from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, PrepareError
from rewards.functions.text import text_of

UNITS = ("tokens", "characters", "words")

PER_SAMPLE = True
INLINE = True
_BOUNDS = {"unit": "words", "min_length": 2, "max_length": 4}
SELF_TEST = (
    Example(completion="three words here", params=_BOUNDS, score=1.0),
    Example(completion="", params=_BOUNDS, score=0.0),
)


def prepare(*, unit: str = "tokens", min_length: int = 0, max_length: int | None = None) -> None:
    """Raises PrepareError for a unit or bounds that cannot be meant."""
    try:
        _check(unit, min_length, max_length)
    except ValueError as error:
        raise PrepareError(str(error)) from error


def length(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    completion_ids: Sequence[Sequence[int]] | None = None,
    *,
    unit: str = "tokens",
    min_length: int = 0,
    max_length: int | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """0.0 to 1.0. Without max_length there is no upper bound. Raises ValueError for bounds that bound nothing."""
    _check(unit, min_length, max_length)
    return [_score(n, min_length, max_length) for n in _lengths(completions, completion_ids, unit)]


def _check(unit: object, low: object, high: object) -> None:
    if unit not in UNITS:
        raise ValueError(f"params.unit must be one of {UNITS}, not {unit!r}")
    if type(low) is not int or low < 0:
        raise ValueError(f"params.min_length must be a whole number from 0, not {low!r}")
    if high is None and not low:
        raise ValueError("length needs params.min_length or params.max_length: without them every completion gets 1.0")
    if high is not None and (type(high) is not int or high < max(low, 1)):
        raise ValueError(
            f"params.max_length must be a whole number from max(min_length, 1) = {max(low, 1)}, not {high!r}"
        )


def _lengths(completions: Sequence[Text], ids: Sequence[Sequence[int]] | None, unit: str) -> list[int]:
    if unit == "characters":
        return [len(text_of(completion)) for completion in completions]
    if unit == "words":
        return [len(text_of(completion).split()) for completion in completions]
    if ids is None:
        raise ValueError("unit 'tokens' needs the column completion_ids, which is not there; use characters or words")
    return [len(one) for one in ids]


def _score(n: int, low: int, high: int | None) -> float:
    if n < low:
        return n / low
    if high is not None and n > high:
        return max(0.0, 2.0 - n / high)
    return 1.0
