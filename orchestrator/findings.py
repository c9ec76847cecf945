"""What a check says: one finding per problem, with the values of every side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "note", "skipped"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One problem. `values` maps the path of each setting involved to its value; `why` says what would go wrong."""

    problem: str
    why: str
    fix: str
    values: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "error"
    code: str = ""
    """Filled in from the rule's table entry, as is `name`."""
    name: str = ""


def skipped(problem: str, would_know: str, values: Mapping[str, Any] | None = None) -> Finding:
    """What a rule could not decide, and what would let it: never the same as passed."""
    return Finding(
        problem=problem, why="Not known here, so not checked.", fix=would_know, values=values or {}, severity="skipped"
    )


NOT_STARTABLE = "ORD003"
"""The one finding that a check passes and a run does not, whatever its severity."""


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def stops_a_run(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" or finding.code == NOT_STARTABLE for finding in findings)
