"""What goes wrong with data, as one sentence with a fix."""

from collections.abc import Iterable
from difflib import get_close_matches

ROWS_KEYS = {"train": "data.rows", "heldout": "evaluation.rows"}
"""The recipe's name for how many rows of a split are asked for."""


class DataError(ValueError):
    """Data that cannot be used. The message says where (file:line), what (both values) and how to fix it."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Ready to append to a message: the likely meant name, else every known one."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(map(repr, names))}"
