"""A whole run with automatic ports, to be started several times in the same second: twin.py ROOT."""

import sys
from datetime import datetime
from pathlib import Path

from orchestrator.steps import HttpProbe, Plan, Step
from orchestrator.supervise.leases import lease_ports
from orchestrator.supervise.run import run_plan
from orchestrator.supervise.rundir import create_run_dir

STEP = str(Path(__file__).with_name("step.py"))


def main() -> int:
    # The same instant in all of them, whenever they come here.
    run_dir = create_run_dir(Path(sys.argv[1]), "twin", datetime(2026, 1, 31, 12, 0, 0))
    notes = run_dir / "notes"
    notes.mkdir()
    steps = []
    leases = lease_ports(2)
    for number, lease in enumerate(leases):
        argv = (sys.executable, STEP, str(notes), f"service{number}", "--port", str(lease.port))
        ready = HttpProbe(url=f"http://127.0.0.1:{lease.port}/health")
        steps.append(Step(name=f"service{number}", argv=argv, ready=ready, port=lease.port))
    trainer = Step(name="trainer", argv=(sys.executable, STEP, str(notes), "trainer", "--exit-after", "1"))
    outcome = run_plan(Plan(name="twin", steps=(*steps, trainer)), run_dir, gate=lambda: None)
    print(run_dir, *(lease.port for lease in leases), outcome.code, outcome.reason)
    return outcome.code


if __name__ == "__main__":
    sys.exit(main())
