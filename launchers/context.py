"""What every launcher is told beside the recipe."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from orchestrator.paths import RunPaths


@dataclass(frozen=True, kw_only=True)
class Context:
    """Facts of one run. `plan` prints with a placeholder in the place of the run directory."""

    run_dir: Path
    num_cpus: int = 1
    interpreter: str = sys.executable
    vllm_version: str | None = None
    """Of the vLLM that generates, whose flags differ by version; None = not known, or none."""

    @property
    def paths(self) -> RunPaths:
        return RunPaths(run_dir=self.run_dir)


def module_argv(interpreter: str, module: str) -> tuple[str, ...]:
    """`-P`: the working directory does not come first on the path, so a user's rewards.py shadows nothing."""
    return (interpreter, "-P", "-m", module)


def threads(count: int) -> dict[str, str]:
    """Threads of one process's numeric libraries; without it each process would take every core.

    A number that the user exported wins.
    """
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(count))}
