"""What the two verbs report, line by line: one thing that was proven, or that is wrong, in words."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "skipped", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One line of a report."""

    name: str
    """What was looked at, in a word or two."""
    level: Level
    message: str
    about: str = ""
    """The part of the whole that it is about, such as a route; '' for the whole."""
    sample: str = ""
    """Row and completion, in words; '' where no single one is to blame."""
    value: str = ""
    """repr of what came back, where that is the problem."""
    fix: str = ""


def has_errors(proofs: Iterable[Proof]) -> bool:
    return any(proof.level == "error" for proof in proofs)
