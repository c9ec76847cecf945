"""Starting a real server for a test."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Target:
    """A running server and what it serves."""

    base_url: str
    model_path: Path
    weights_dir: Path
    process: subprocess.Popen[str]


def start_embedded(model: Path, weights: Path, *more: str) -> Target:
    """Start the embedded server on a free port, wait until it says it is ready."""
    argv = [sys.executable, "-P", "-m", "orchestrator.generation.server", "--model", str(model), "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ORCHESTRATE_RUN_ID": "run-7"}
    argv += ["--served-model-name", "tiny", "--weights-dir", str(weights), "--dtype", "float32", *more]
    process = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "ready on" in line, line + process.stderr.read()
    return Target(f"http://{line.split()[-1]}", model, weights, process)


def stop(target: Target) -> None:
    target.process.terminate()
    target.process.wait(10)
