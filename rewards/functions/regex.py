"""1.0 where a regular expression is found in the completion, or matches all of it.

`mode` is search or fullmatch; fullmatch leaves out the white space around the completion. `.` matches newlines too.
Some patterns take exponential time on some texts, so it runs in a worker with a time limit.

Range: 0.0 or 1.0.
Source: Python's `re`.
"""

import re
from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, PrepareError
from rewards.functions.text import text_of

MODES = ("search", "fullmatch")

PER_SAMPLE = True
SELF_TEST = (
    Example(completion="a 7", params={"pattern": r"\d"}, score=1.0),
    Example(completion="none", params={"pattern": r"\d"}, score=0.0),
)


def prepare(*, pattern: str | None = None, mode: str = "search") -> None:
    """Raises PrepareError for params that cannot be meant."""
    try:
        _compiled(pattern, mode)
    except ValueError as error:
        raise PrepareError(str(error)) from error


def regex(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    *,
    pattern: str | None = None,
    mode: str = "search",
    **kwargs: Any,
) -> list[float | None]:
    """1.0 or 0.0 for each completion. Raises ValueError for bad params."""
    compiled = _compiled(pattern, mode)
    if mode == "search":
        return [float(compiled.search(text_of(completion)) is not None) for completion in completions]
    return [float(compiled.fullmatch(text_of(completion).strip()) is not None) for completion in completions]


def _compiled(pattern: str | None, mode: str) -> re.Pattern[str]:
    if mode not in MODES:
        raise ValueError(f"params.mode must be one of {MODES}, not {mode!r}")
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"regex needs params.pattern, a regular expression, not {pattern!r}")
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ValueError(f"params.pattern {pattern!r} is not a regular expression: {error}") from error
