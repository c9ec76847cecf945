"""A penalty for a completion that repeats itself: max_penalty times the share of its n-grams that occurred before.

n-grams are runs of `ngram_size` words; words are lower-cased and parted by white space, so a text in a script without
spaces has none to repeat. Completions of fewer words than `ngram_size` cost nothing.

Units: words.
Range: max_penalty (not above 0) to 0.0.
Source: appendix C.2 of "Demystifying Long Chain-of-Thought" (arXiv 2502.03373), in the form that open-r1 gave it.
"""

import math
from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, PrepareError
from rewards.functions.text import text_of

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion="every word of this is new", score=0.0),
    Example(completion="no no no no no no", score=-0.75),
)


def prepare(*, ngram_size: int = 3, max_penalty: float = -1.0) -> None:
    """Raises PrepareError for params out of their range."""
    try:
        _check(ngram_size, max_penalty)
    except ValueError as error:
        raise PrepareError(str(error)) from error


def repetition_penalty(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    *,
    ngram_size: int = 3,
    max_penalty: float = -1.0,
    **kwargs: Any,
) -> list[float | None]:
    """max_penalty to 0.0. Raises ValueError for an ngram_size below 1 or a max_penalty above 0."""
    _check(ngram_size, max_penalty)
    return [max_penalty * _repeated(text_of(completion), ngram_size) for completion in completions]


def _check(ngram_size: int, max_penalty: float) -> None:
    if type(ngram_size) is not int or ngram_size < 1:
        raise ValueError(f"params.ngram_size must be a whole number of words from 1, not {ngram_size!r}")
    number = isinstance(max_penalty, (int, float)) and not isinstance(max_penalty, bool)
    if not number or not -math.inf < max_penalty <= 0:
        raise ValueError(
            f"params.max_penalty must be a finite number not above 0, the penalty's lower end, not {max_penalty!r}"
        )


def _repeated(text: str, size: int) -> float:
    """Share of the n-grams that repeat an earlier one, 0.0 to 1.0."""
    words = text.lower().split()
    total = len(words) - size + 1
    if total < 1:
        return 0.0
    distinct = set(zip(*(words[first:] for first in range(size)), strict=False))
    return 1.0 - len(distinct) / total
