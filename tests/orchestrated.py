"""Starting the real command line from tests, and seeing what it leaves behind."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

ORCHESTRATE = Path(sys.executable).with_name("orchestrate")
SMALL = (
    "+experiment=grpo_math",
    "trainer.args.max_steps=3",
    "trainer.args.per_device_train_batch_size=16",
    "evaluation.rows=10",
    "evaluation.samples=2",
)
"""The shipped experiment, a few seconds of it: 3 steps of 16 completions."""


def orchestrate(
    *words: str, cwd: Path, timeout_s: float = 240, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ORCHESTRATE), *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=os.environ | (env or {}),
    )


def started(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """In a session of its own, as from a terminal of its own."""
    return subprocess.Popen(
        [str(ORCHESTRATE), *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_dirs(cwd: Path, name: str = "grpo_math") -> list[Path]:
    parent = cwd / "runs" / name
    return sorted(p for p in parent.glob("2*") if p.is_dir()) if parent.is_dir() else []


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.02)


def processes_of(run_dir: Path) -> list[psutil.Process]:
    """Living processes that carry the run's id in their environment, the guardian included."""
    record = run_dir / "processes.json"
    run_id = read(record)["run_id"] if record.is_file() else None
    return [p for p in psutil.process_iter() if run_id and _carries(p, run_id)]


def _carries(process: psutil.Process, run_id: str) -> bool:
    try:
        in_environment = process.environ().get("ORCHESTRATE_RUN_ID") == run_id
        return process.status() != psutil.STATUS_ZOMBIE and (in_environment or run_id in process.cmdline())
    except psutil.Error:
        return False
