"""Findings as people read them, and as machines do (docs/findings.md)."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.exits import FINDINGS, OK
from orchestrator.findings import NOT_STARTABLE, Finding, Severity, has_errors, not_ignorable
from orchestrator.jobs import CheckedJob
from orchestrator.render.causes import MOST_NAMED, Cause, Names, causes

VERSION = 1
"""Of the JSON: raised when a field changes its meaning or goes; a new field does not raise it."""
ORDER: tuple[Severity, ...] = ("error", "warning", "note", "skipped")
IGNORED = "ignored"


def text(findings: Sequence[Finding]) -> str:
    """Errors first, what the recipe ignores last; each with where, both values, why, the fix and its page."""
    return "\n\n".join([*(_one(finding) for finding in sorted(findings, key=_rank)), summary(findings)])


def _kind(finding: Finding) -> str:
    return finding.severity if finding.ignored is None else IGNORED


def _rank(finding: Finding) -> int:
    return (*ORDER, IGNORED).index(_kind(finding))


def _one(finding: Finding, values: Mapping[str, Any] | None = None) -> str:
    lines = [f"{_kind(finding)}[{finding.code}] {finding.name}: {finding.problem}"]
    if shown := _values(finding.values if values is None else values):
        lines.append(f"  {shown}")
    more = f"more: orchestrate rules {finding.code}"
    if finding.ignored is None:
        lines += [f"  {finding.why}", f"  fix: {finding.fix}        {more}"]
    else:
        lines.append(f"  reason: {finding.ignored}        {more}")
    return "\n".join(lines)


def _values(values: Mapping[str, Any]) -> str:
    return "   ".join(f"{path} = {'null' if value is None else value}" for path, value in values.items())


def summary(findings: Iterable[Finding]) -> str:
    """One line: how many of each, or that nothing was found."""
    found = list(findings)
    counts = Counter(map(_kind, found))
    plain = ("skipped", IGNORED)
    parts = [
        f"{counts[kind]} {kind if kind in plain or counts[kind] == 1 else kind + 's'}"
        for kind in (*ORDER, IGNORED)
        if counts[kind]
    ]
    if not counts["error"]:
        startable = not any(finding.code == NOT_STARTABLE for finding in found)
        head = "ok: the parts agree" + ("" if startable else f"; this version cannot start them ({NOT_STARTABLE})")
        return head + (f" ({', '.join(parts)})" if parts else "")
    return ", ".join(parts)


def report(jobs: Sequence[CheckedJob]) -> str:
    """One job: its findings. Several: findings grouped by cause, each naming the jobs that it concerns."""
    if len(jobs) == 1:
        return text(jobs[0].findings)
    names = Names(jobs)
    blocks = [_block(cause, names) for cause in sorted(causes(jobs), key=lambda cause: _rank(cause.first))]
    failing = sum(has_errors(job.findings) for job in jobs)
    agree = f"ok: {len(jobs)} jobs, in each the parts agree"
    return "\n\n".join([*blocks, f"{len(jobs)} jobs: {failing} with errors" if failing else agree])


def _block(cause: Cause, names: Names) -> str:
    """The finding with the values that all its jobs share; below it the jobs, each with the values of its own."""
    first = cause.first
    shared = {p: v for p, v in first.values.items() if all(one.finding.values[p] == v for one in cause.said)}
    if len(cause.said) == 1:
        return f"{_one(first, shared)}\n  in {names.where(cause.jobs)}"
    lines = [_one(first, shared), f"  in {len(cause.jobs)} jobs, with values of their own:"]
    for one in cause.said[:MOST_NAMED]:
        own = {path: value for path, value in one.finding.values.items() if path not in shared}
        fix = f"   fix: {one.finding.fix}" if one.finding.fix != first.fix and one.finding.ignored is None else ""
        lines += [f"    in {names.where(one.jobs)}", f"      {_values(own) or one.finding.problem}{fix}"]
    if (rest := len(cause.said) - MOST_NAMED) > 0:
        lines.append(f"    and {rest} more like these; --json has them all")
    return "\n".join(lines)


def as_json(jobs: Sequence[CheckedJob], *, error: str | None = None, sweeper: str | None = None) -> dict[str, Any]:
    """The document of docs/findings.md. `error`: why nothing was checked; `sweeper`: who chooses the jobs later."""
    names = Names(jobs)
    ok = error is None and not any(has_errors(job.findings) for job in jobs)
    return {
        "version": VERSION,
        "ok": ok,
        "exit_code": OK if ok else FINDINGS,
        "error": error,
        "sweeper": sweeper,
        "counts": _counts(finding for job in jobs for finding in job.findings),
        "jobs": [_job(number, job, names) for number, job in enumerate(jobs)],
        "findings": [*_findings(causes(jobs))],
    }


def _counts(findings: Iterable[Finding]) -> dict[str, int]:
    counts = Counter(map(_kind, findings))
    return {kind: counts[kind] for kind in (*ORDER, IGNORED)}


def _job(number: int, job: CheckedJob, names: Names) -> dict[str, Any]:
    return {
        "job": number,
        "overrides": names.all(number),
        "differs": names.differs(number),
        "ok": not has_errors(job.findings),
        "starts": job.starts,
        "counts": _counts(job.findings),
    }


def _findings(found: Sequence[Cause]) -> Iterator[dict[str, Any]]:
    for number, cause in enumerate(found):
        for one in cause.said:
            finding = one.finding
            yield {
                "code": finding.code,
                "name": finding.name,
                "severity": finding.severity,
                "ignored": finding.ignored,
                "ignorable": not not_ignorable(finding),
                "problem": finding.problem,
                "values": {path: _jsonable(value) for path, value in finding.values.items()},
                "why": finding.why,
                "fix": finding.fix,
                "cause": number,
                "jobs": one.jobs,
            }


def _jsonable(value: Any) -> Any:
    """JSON has no infinity, and no objects of ours."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    plain = isinstance(value, (str, int, type(None))) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else str(value)
