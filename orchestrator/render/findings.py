"""Findings as people read them, and as machines do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.findings import Finding, Severity
from orchestrator.jobs import CheckedJob

ORDER: tuple[Severity, ...] = ("error", "warning", "note", "skipped")


def text(findings: Sequence[Finding]) -> str:
    """Errors first; each with where, both values, why, the fix and its page."""
    ordered = sorted(findings, key=lambda finding: ORDER.index(finding.severity))
    return "\n\n".join([*(_one(finding) for finding in ordered), summary(findings)])


def _one(finding: Finding) -> str:
    lines = [f"{finding.severity}[{finding.code}] {finding.name}: {finding.problem}"]
    if finding.values:
        lines.append("  " + "   ".join(f"{path} = {_shown(value)}" for path, value in finding.values.items()))
    lines.append(f"  {finding.why}")
    lines.append(f"  fix: {finding.fix}        more: orchestrate rules {finding.code}")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def summary(findings: Sequence[Finding]) -> str:
    """One line: how many of each, or that nothing was found."""
    counts = Counter(finding.severity for finding in findings)
    parts = [f"{counts[s]} {s if s == 'skipped' or counts[s] == 1 else s + 's'}" for s in ORDER if counts[s]]
    if not counts["error"]:
        return "ok: the parts agree" + (f" ({', '.join(parts)})" if parts else "")
    return ", ".join(parts)


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """{"ok", "counts", "findings": [{code, name, severity, problem, values, why, fix}]}"""
    counts = Counter(finding.severity for finding in findings)
    return {
        "ok": not counts["error"],
        "counts": {severity: counts[severity] for severity in ORDER},
        "findings": [_plain(asdict(finding)) for finding in findings],
    }


def _plain(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {**finding, "values": {path: _jsonable(value) for path, value in finding["values"].items()}}


def _jsonable(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, list, dict, type(None))) else str(value)


def sweep_text(jobs: Sequence[CheckedJob]) -> str:
    """One job: its findings. Several: findings grouped by cause, each naming the jobs that it concerns."""
    if len(jobs) == 1:
        return text(jobs[0].findings)
    grouped: dict[str, list[int]] = {}
    for number, job in enumerate(jobs):
        for finding in job.findings:
            grouped.setdefault(_one(finding), []).append(number)
    blocks = [f"{block}\n  in {_jobs(numbers, len(jobs))}" for block, numbers in grouped.items()]
    failing = sum(any(finding.severity == "error" for finding in job.findings) for job in jobs)
    blocks.append(
        f"{len(jobs)} jobs: {failing} with errors" if failing else f"ok: {len(jobs)} jobs, in each the parts agree"
    )
    return "\n\n".join(blocks)


def _jobs(numbers: Sequence[int], total: int) -> str:
    return (
        "every job" if len(numbers) == total else f"job{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    )


def sweep_json(jobs: Sequence[CheckedJob]) -> dict[str, Any]:
    """One job: as `as_json`. Several: {"ok", "jobs": [{"overrides", "ok", "counts", "findings"}]}"""
    each = [as_json(job.findings) for job in jobs]
    if len(jobs) == 1:
        return each[0]
    return {
        "ok": all(job["ok"] for job in each),
        "jobs": [{"overrides": list(job.overrides), **found} for job, found in zip(jobs, each, strict=True)],
    }
