"""An orchestrator of its own for a test to kill: orchestrate.py PLAN.json RUN_DIR RUN_ID."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

from orchestrator.steps import HttpProbe, Plan, Step
from orchestrator.supervise.run import run_plan


def step_from(data: dict[str, Any]) -> Step:
    ready = data.pop("ready")
    after, argv = tuple(data.pop("after")), tuple(data.pop("argv"))
    return Step(**data, after=after, argv=argv, ready=HttpProbe(**ready) if ready else None)


def main() -> int:
    # A test runner in the background of a shell hands down SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    data = json.loads(Path(sys.argv[1]).read_text())
    steps = tuple(step_from(one) for one in data.pop("steps"))
    outcome = run_plan(Plan(steps=steps, **data), Path(sys.argv[2]), gate=lambda: None, run_id=sys.argv[3])
    print(outcome)
    return outcome.code


if __name__ == "__main__":
    sys.exit(main())
