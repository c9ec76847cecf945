"""What every launcher is told beside the recipe."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
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

    devices: Mapping[str, str] = field(default_factory=dict)
    """Part -> its CUDA_VISIBLE_DEVICES; a part that is not in it sees what the run sees."""

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


def gpus(context: Context, part: str) -> dict[str, str]:
    """Of one part's process. The order is nvidia-smi's, which the recipe counts in; CUDA's own puts the fastest first.

    An empty list hides every GPU.
    """
    if part not in context.devices:
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": context.devices[part]}
