"""`python -P -m orchestrator.sweep_job`: one job of a sweep whose jobs run in processes of their own.

What it is to do comes through the environment, because a command line ends up in logs and an override may hold a
secret; how it ended goes into a file. Between the two it is a run like any other.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.compose import Composer
from orchestrator.jobs import JobResult, Share
from orchestrator.running import run_job
from orchestrator.supervise.rundir import write_json

JOB_VARIABLE = "ORCHESTRATE_JOB"


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What the sweep tells a job."""

    overrides: tuple[str, ...]
    config_dir: str | None
    share: Share
    outcome: str
    """The file that says how it ended."""

    def environment(self) -> dict[str, str]:
        return {JOB_VARIABLE: json.dumps(asdict(self))}


def read_outcome(path: Path) -> JobResult | None:
    """None when the job did not come to write it."""
    if not path.is_file():
        return None
    said = json.loads(path.read_text(encoding="utf-8"))
    return JobResult(**said | {"run_dir": Path(said["run_dir"]) if said["run_dir"] else None})


def main() -> int:
    told: dict[str, Any] = json.loads(os.environ.pop(JOB_VARIABLE))
    composed = Composer(told["config_dir"]).compose(told["overrides"])
    done = run_job(composed.raw, composed.overrides, Share(**told["share"]))
    write_json(Path(told["outcome"]), asdict(done) | {"run_dir": str(done.run_dir or "")})
    return done.code


if __name__ == "__main__":
    sys.exit(main())
