"""Steps, runs and looks at /proc for the tests with real processes. Shares no code with what it judges."""

import dataclasses
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from orchestrator.steps import HttpProbe, Plan, Step

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parents[2]


def wait_for(what: Callable[[], object], limit_s: float, message: str = "") -> float:
    """Poll until it is true; returns the seconds that took."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < limit_s, f"not within {limit_s} s: {message}"
        time.sleep(0.02)
    return time.monotonic() - began


def pids_of_run(run_id: str) -> list[int]:
    """Living processes with the run id in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"ORCHESTRATE_RUN_ID={run_id}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def lives(note: Path) -> bool:
    """Whether the process that wrote the note is there and no zombie."""
    pid, start = note.read_text().split()
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[19] == start and fields[0] not in "ZX"


@dataclasses.dataclass
class Scene:
    """A folder for one test, with the steps' notes in it."""

    folder: Path
    run_id: str = dataclasses.field(default_factory=lambda: f"test-{uuid.uuid4().hex}")

    @property
    def notes(self) -> Path:
        (self.folder / "notes").mkdir(exist_ok=True)
        return self.folder / "notes"

    @property
    def run_dir(self) -> Path:
        (self.folder / "run").mkdir(exist_ok=True)
        return self.folder / "run"

    def step(self, name: str, *flags: str, port: int | None = None, **fields: object) -> Step:
        """A service when it has a port, otherwise a task."""
        argv = [sys.executable, str(PROGRAMS / "step.py"), str(self.notes), name, *flags]
        argv += [] if port is None else ["--port", str(port)]
        ready = None if port is None else HttpProbe(url=f"http://127.0.0.1:{port}/health", interval_s=0.02)
        step = Step(name=name, argv=tuple(argv), ready=ready, port=port, ready_timeout_s=20.0)
        return dataclasses.replace(step, **fields)  # type: ignore[arg-type]

    def plan(self, *steps: Step, grace_s: float = 3.0) -> Plan:
        return Plan(name="test", steps=steps, stop_grace_s=grace_s)

    def noted(self, *names: str) -> bool:
        """Whether all these processes have been made."""
        return all((self.notes / f"{name}.pid").exists() for name in names)

    def living(self) -> list[str]:
        """Everything of the run that is there, by environment and by note."""
        noted = [path.stem for path in self.notes.glob("*.pid") if lives(path)]
        return noted + [f"pid {pid}" for pid in pids_of_run(self.run_id)]

    def pid(self, name: str) -> int:
        return int((self.notes / f"{name}.pid").read_text().split()[0])

    def launch(self, plan: Plan) -> "subprocess.Popen[bytes]":
        """Run the plan in an orchestrator process of its own."""
        plan_file = self.folder / "plan.json"
        plan_file.write_text(json.dumps(dataclasses.asdict(plan)))
        argv = [sys.executable, str(PROGRAMS / "orchestrate.py"), str(plan_file), str(self.run_dir), self.run_id]
        with (self.folder / "orchestrator.log").open("wb") as log:
            return subprocess.Popen(
                argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log, start_new_session=True
            )
