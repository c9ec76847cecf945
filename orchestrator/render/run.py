"""How a run ended, in a few lines; and the table that compares the jobs of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.exits import OK
from orchestrator.supervise.outcome import Outcome


def report(result: Mapping[str, Any]) -> str:
    """First and last reward, held-out before and after, and where everything is."""
    alarms = len(result.get("alarms") or ())
    verdict = "ok" + (f", with {alarms} alarm{'s' if alarms > 1 else ''}" if alarms else "")
    start = result.get("start_step") or 0
    since = f" ({result['final_step'] - start} of them since the resume)" if start else ""
    lines = [f"{verdict}: {result['final_step']} steps{since} in {result['training_s']:.0f} s of training"]
    lines.append(
        f"  reward    {_number(result['first_reward'])} -> {_number(result['last_reward'])}"
        f"  (mean of the first and last {result['reward_window']} steps)"
    )
    before, after = result.get("heldout_before"), result.get("heldout_after")
    if before and after:
        for kind in ("sampled", "greedy"):
            # With one function the total says nothing that its own line does not.
            for name in after[kind] if len(after[kind]) > 2 else list(after[kind])[1:]:
                lines.append(
                    f"  held-out  {name}, {kind}: {_number(before[kind][name])} -> {_number(after[kind][name])}"
                )
    if any((result.get("unscored") or {}).values()):
        parts = ", ".join(f"{count} {why}" for why, count in result["unscored"].items())
        lines.append(f"  unscored  {parts} (samples without a reward, in samples.jsonl)")
    counted = result.get("counts", {})
    known = ", ".join(f"{name} {count}" for name, count in counted.items() if count is not None)
    unknown = ", ".join(name for name, count in counted.items() if count is None)
    if known:
        lines.append(f"  counted   {known} (as the steps imply)" + (f"; {unknown} by nobody" if unknown else ""))
    for one in result.get("alarms", ()):
        when = f"steps {one['first_step']} to {one['last_step']}"
        lines.append(f"  alarm     {one['code']} {one['name']}, {one['process']}, {when}: {one['problem']}")
    lines.append(f"  run       {result['run_dir']}  (model/, metrics.jsonl, samples.jsonl, logs/)")
    return "\n".join(lines)


def failure(outcome: Outcome, run_dir: str, *, resumable: bool) -> str:
    """Which part, why, the last lines of its log, the log's path."""
    if outcome.code > 128:
        lines = [outcome.reason]
    elif outcome.failed and outcome.reason.startswith(outcome.failed):
        lines = [f"failed: {outcome.reason}"]
    else:
        lines = [f"failed: {outcome.failed or 'handshake'}: {outcome.reason}"]
    lines += [f"  | {line}" for line in outcome.log_tail]
    if outcome.log_path:
        lines.append(f"  log: {outcome.log_path}")
    lines.append(f"  run: {run_dir}")
    if resumable:
        lines.append(f"  go on from its last checkpoint: orchestrate resume {run_dir}")
    if outcome.left:
        lines.append(f"  processes that could not be ended: {', '.join(map(str, outcome.left))}")
    return "\n".join(lines)


def job_started(job: int, own: Sequence[str], gpus: Sequence[int], log: Path) -> str:
    """`job 1 starts on GPUs 2,3: seed=2   log: runs/grpo_math/sweeps/.../logs/1.log`"""
    places = f" on GPU{'s' if len(gpus) > 1 else ''} {','.join(map(str, gpus))}" if gpus else ""
    return f"job {job} starts{places}: {' '.join(own)}   log: {log}"


def job_ended(row: "JobRow", reason: str, log: Path) -> str:
    """With the last reward of a job that ended well, and the reason and the log of another."""
    if row.code == OK:
        return f"job {row.job} ok: reward {_number(row.result.get('last_reward'))}   run: {row.run_dir}"
    return f"job {row.job} ended with code {row.code}: {reason}   log: {log}"


COLUMNS = (
    "job", "first", "last", "sampled", "after", "greedy", "after", "seconds", "exit", "what differs", "run",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """One job of a sweep: how it ended, or why it was never started."""

    job: int
    overrides: tuple[str, ...]
    code: int | None = None
    """Exit code; 2 = findings kept it from starting, None = its turn never came."""
    run_dir: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    not_started: str | None = None
    """The codes of what the check found, or that the sweep ended first."""


def sweep_table(rows: Sequence[JobRow]) -> str:
    """One line per job, with what its overrides do not share with the others'."""
    shared = set.intersection(*(set(row.overrides) for row in rows)) if len(rows) > 1 else set()
    cells = [COLUMNS, *(_cells(row, shared) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _cells(row: JobRow, shared: set[str]) -> tuple[str, ...]:
    before, after = row.result.get("heldout_before") or {}, row.result.get("heldout_after") or {}
    return (
        str(row.job),
        _number(row.result.get("first_reward")),
        _number(row.result.get("last_reward")),
        *(_number(when.get(kind, {}).get("reward")) for kind in ("sampled", "greedy") for when in (before, after)),
        _number(row.result.get("training_s"), 0),
        str(row.code) if row.not_started is None else f"not run: {row.not_started}",
        " ".join(o for o in row.overrides if o not in shared),
        row.run_dir or "-",
    )


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
