"""The share of the demanded tags that the completion has: each exactly once, and in the demanded order.

`tags: [think, answer]` demands four: `<think>`, `</think>`, `<answer>`, `</answer>`. Of those that occur exactly once,
the longest run in the right order counts, so one misplaced tag costs its own share and no other.

Range: 0.0 to 1.0, in steps of 1 / (2 * number of tags).
Source: the tag count reward of open-r1, which gives a quarter for each of four tags; the order is our addition.
"""

from bisect import bisect
from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, PrepareError
from rewards.functions.text import text_of

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion="<think>2+2</think> is <answer>4</answer>", score=1.0),
    Example(completion="four", score=0.0),
)


def prepare(*, tags: Sequence[str] = ("think", "answer")) -> None:
    """Raises PrepareError for tags that are no list of different names."""
    try:
        _check(tags)
    except ValueError as error:
        raise PrepareError(str(error)) from error


def tags(
    prompts: Sequence[Text], completions: Sequence[Text], *, tags: Sequence[str] = ("think", "answer"), **kwargs: Any
) -> list[float | None]:
    """0.0 to 1.0. `tags` are names without brackets. Raises ValueError for anything else."""
    _check(tags)
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    return [_in_order(text_of(completion), marks) / len(marks) for completion in completions]


def _check(tags: Sequence[str]) -> None:
    if not isinstance(tags, (list, tuple)) or not tags or not all(_is_name(tag) for tag in tags):
        raise ValueError(f"params.tags must be a list of tag names such as ['think', 'answer'], not {tags!r}")
    if len(set(tags)) < len(tags):
        raise ValueError(f"params.tags names a tag twice, and each may occur only once: {tags!r}")


def _is_name(tag: object) -> bool:
    return isinstance(tag, str) and tag.isidentifier()


def _in_order(text: str, marks: Sequence[str]) -> int:
    """How many marks stand in the given order at most, of those that occur once."""
    ends: list[int] = []  # ends[k]: the earliest place where k + 1 marks in order can end
    for place in [text.find(mark) for mark in marks if text.count(mark) == 1]:
        at = bisect(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)
