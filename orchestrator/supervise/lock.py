"""lock.json: what a run was made of, so that another one can be compared with it. Secrets are never in it."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.facts import Facts, ModelFacts
from orchestrator.schema import RunConfig
from rewards.calling.signature import Signature

HASHED_WHOLE_BYTES = 64 * 2**20  # larger weight files are named by their size: reading 100 GB would delay the start
GIT_TIMEOUT_S = 5.0


def lock(run: RunConfig, facts: Facts, overrides: tuple[str, ...], env: Mapping[str, str]) -> dict[str, Any]:
    """Versions, git state, fingerprints of model and data, reward sources, seeds, hardware.

    `env` is what everything that the run starts inherits: of it, only which GPUs are visible is written down.
    """
    model = facts.models.get(run.model.name)
    return {
        "versions": dict(facts.versions) | {"python": platform.python_version()},
        "interpreter": sys.executable,
        "overrides": list(overrides),
        # Relative paths of a recipe start here, also when it is resumed from elsewhere.
        "cwd": str(Path.cwd()),
        "git": git_state(Path.cwd()),
        "model": fingerprint(Path(model.path)) if isinstance(model, ModelFacts) else None,
        "data": None if isinstance(facts.data, str) else facts.data.fingerprint,
        "rewards": {f.name: _source(facts.signatures.get(f.target)) for f in run.reward.functions},
        "post_process": _source(facts.hook_signature),
        "seed": run.seed,
        "hardware": {
            "machine": platform.machine(),
            "system": platform.platform(),
            "cpus": facts.num_cpus,
            "gpus": facts.gpus if isinstance(facts.gpus, str) else [gpu.name for gpu in facts.gpus],
            "cuda_visible_devices": env.get("CUDA_VISIBLE_DEVICES"),
        },
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether anything tracked differs from it; None outside a repository."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ("git", "-C", str(folder), *words), capture_output=True, text=True, timeout=GIT_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    return (
        None
        if commit is None
        else {"commit": commit, "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}
    )


def fingerprint(folder: Path) -> dict[str, str]:
    """File name -> sha256, or its size where the file is large."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: _digest(path) for path in files}


def _digest(path: Path) -> str:
    size = os.path.getsize(path)
    if size > HASHED_WHOLE_BYTES:
        return f"{size} bytes"
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _source(signature: Signature | str | None) -> str | None:
    if signature is None or isinstance(signature, str) or signature.path is None:
        return None
    return _digest(signature.path)
