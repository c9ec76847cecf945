"""What a check says: one finding per problem, with the values of every side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
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
    ignored: str | None = None
    """Why the recipe accepts it (`ignore`); None = it counts."""


def skipped(problem: str, would_know: str, values: Mapping[str, Any] | None = None) -> Finding:
    """What a rule could not decide, and what would let it: never the same as passed."""
    return Finding(
        problem=problem, why="Not known here, so not checked.", fix=would_know, values=values or {}, severity="skipped"
    )


NOT_STARTABLE = "ORD003"
"""The one finding that a check passes and a run does not, whatever its severity."""

_UNFIT = ("CFG001", "CFG002", "CFG003", "CFG004")


def not_ignorable(finding: Finding) -> str:
    """Why `ignore` does not apply to this finding; '' = it does."""
    if finding.code == NOT_STARTABLE:
        return "there is nothing that could start that part"
    libraries = all(".args." in path for path in finding.values)
    # The words of CFG004 that stand in *.args are read from a library's sources, and may be too few.
    if finding.code in _UNFIT and not (finding.code == "CFG004" and libraries):
        return "a recipe that does not fit the schema is not the recipe that would run"
    return ""


def marked(finding: Finding, ignore: Mapping[str, str]) -> Finding:
    """The finding as the recipe's `ignore` (code -> reason) has it."""
    reason = ignore.get(finding.code, "").strip()
    if not reason:
        return finding
    if refusal := not_ignorable(finding):
        return replace(finding, why=f"{finding.why} ignore.{finding.code} does not apply: {refusal}.")
    return replace(finding, ignored=reason)


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" and finding.ignored is None for finding in findings)


def stopping(findings: Iterable[Finding]) -> list[str]:
    """Codes of the findings that keep a run from starting, each once; [] = it starts."""
    stops = (f.code for f in findings if f.code == NOT_STARTABLE or (f.severity == "error" and f.ignored is None))
    return list(dict.fromkeys(stops))


def stops_a_run(findings: Iterable[Finding]) -> bool:
    return bool(stopping(findings))
