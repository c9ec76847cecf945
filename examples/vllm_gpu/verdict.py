"""What a run of these recipes has shown: each check with its figures, and whether it holds."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

HELD_OUT_NOISE = 0.04
"""Accuracy of 250 greedy answers moves by about 0.03 (one standard error) with the rows alone."""


@dataclass(frozen=True, kw_only=True)
class Check:
    name: str
    holds: bool
    figures: str


def judge(run_dir: Path | None, code: int) -> list[Check]:
    """`run_dir` None where none was made; `code` is orchestrate's exit code."""
    checks = [Check(name="exit code", holds=code == 0, figures=str(code))]
    if run_dir is None:
        return checks
    left = processes_of(run_dir)
    checks.append(
        Check(name="nothing left running", holds=not left, figures=", ".join(map(str, left)) or "no process of the run")
    )
    result = _read(run_dir / "result.json")
    if "first_reward" in result:  # the trainer has reported
        checks += [_reward(result), _held_out(result), _sync(result, run_dir)]
    return checks


def _reward(result: dict[str, Any]) -> Check:
    first, last = result["first_reward"], result["last_reward"]
    window = f"{result['reward_window']} steps"
    figures = f"{_number(first)} in the first {window}, {_number(last)} in the last {window}"
    return Check(name="reward rises", holds=first is not None and last is not None and last > first, figures=figures)


def _held_out(result: dict[str, Any]) -> Check:
    before, after = (result.get(key) for key in ("heldout_before", "heldout_after"))
    if before is None or after is None:
        return Check(name="held-out accuracy", holds=False, figures="not measured")
    old, new = (each["greedy"]["accuracy"] for each in (before, after))
    return Check(
        name="held-out accuracy does not fall",
        holds=old is not None and new is not None and new >= old - HELD_OUT_NOISE,
        figures=f"greedy, {_number(old)} before, {_number(new)} after",
    )


def _sync(result: dict[str, Any], run_dir: Path) -> Check:
    """The run itself stops at a gap beyond its tolerance; here it is seen that it has looked."""
    lines = (json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    gaps = [line["sync/logprob_gap"] for line in lines if line.get("sync/logprob_gap") is not None]
    last = result["logprob_gap"]
    gaps += [last] if last is not None else []
    figures = f"largest of {len(gaps)} gaps: {max(gaps):.3g} nats" if gaps else "no sync was compared"
    return Check(name="every proof of a weight sync holds", holds=bool(gaps), figures=figures)


def processes_of(run_dir: Path) -> list[int]:
    """Pids of living processes that carry the run's id."""
    run_id = _read(run_dir / "processes.json").get("run_id")
    return [process.pid for process in psutil.process_iter() if run_id and _carries(process, run_id)]


def _carries(process: psutil.Process, run_id: str) -> bool:
    try:
        found = process.environ().get("ORCHESTRATE_RUN_ID") == run_id
        return found and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:  # somebody else's, or gone by now
        return False


def as_json(variant: str, run_dir: Path | None, checks: list[Check]) -> dict[str, Any]:
    """With what the run was made of (lock.json): the figures mean little without it."""
    lock = _read(run_dir / "lock.json") if run_dir else {}
    return {
        "recipe": variant,
        "verdict": "PASS" if all(check.holds for check in checks) else "FAIL",
        "checks": [{"name": check.name, "holds": check.holds, "figures": check.figures} for check in checks],
        "result": _read(run_dir / "result.json") if run_dir else {},
        "versions": lock.get("versions", {}),
        "hardware": lock.get("hardware", {}),
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
