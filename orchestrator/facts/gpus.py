"""The NVIDIA GPUs that a run may use, as nvidia-smi tells them. Nothing here opens one."""

import csv
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from orchestrator.facts.types import Gpu
from orchestrator.kinds import generation_kind
from orchestrator.schema import RunConfig

COLUMNS = ("index", "uuid", "name", "memory.total", "compute_cap", "mig.mode.current")
TIMEOUT_S = 20.0
"""The first question after a boot loads the driver, which takes seconds on a large machine."""
DRIVER = ("proc/driver/nvidia", "dev/nvidiactl", "dev/dxg")
"""One of these is there where NVIDIA's driver is; the last one under WSL."""
MIB_PER_GIB = 1024


class GpusUnknownError(Exception):
    """There may be GPUs, and nobody says which."""


def uses_gpus(run: RunConfig) -> bool:
    """Whether anything in the recipe is placed on GPUs. A single Python process takes one only where there is one."""
    launcher = run.launcher
    named = (run.generation.gpus, launcher.gpus, run.reward.judge.gpus, launcher.zero_stage, launcher.config)
    started_on_gpus = launcher.kind != "python" or run.trainer.kind == "command"
    return generation_kind(run.generation).vllm or started_on_gpus or any(n is not None for n in named)


def visible_gpus(visible: str | None, root: Path = Path("/")) -> tuple[Gpu, ...] | str:
    """Those that `visible` (CUDA_VISIBLE_DEVICES; None = not set) leaves, in its order; () = there is none.

    `root` is the folder that /proc and /dev are looked for in.
    """
    if not any((root / path).exists() for path in DRIVER):
        amd = (root / "dev/kfd").exists()
        return "only NVIDIA's GPUs are looked at, and this machine has AMD's driver" if amd else ()
    try:
        return parse_gpus(_ask_nvidia_smi(), visible)
    except GpusUnknownError as error:
        return str(error)


def parse_gpus(table: str, visible: str | None) -> tuple[Gpu, ...]:
    """nvidia-smi's CSV of COLUMNS, without header and units. Raises GpusUnknownError."""
    rows: list[dict[str, str]] = []
    for cells in csv.reader(table.splitlines(), skipinitialspace=True):
        if len(cells) != len(COLUMNS):
            raise GpusUnknownError(f"nvidia-smi answers {', '.join(cells)!r:.200}, which is no row of {COLUMNS}")
        rows.append(dict(zip(COLUMNS, (cell.strip() for cell in cells), strict=True)))
    return tuple(_gpu(row) for row in _chosen(rows, visible))


def _chosen(rows: list[dict[str, str]], visible: str | None) -> Iterator[dict[str, str]]:
    """As CUDA reads the variable: indices or (starts of) UUIDs; the first that is none hides all that follow."""
    if visible is None:
        yield from rows
        return
    for word in (word.strip() for word in visible.split(",")):
        if word.startswith("MIG-"):
            raise GpusUnknownError(f"CUDA_VISIBLE_DEVICES names {word}, a part of a GPU: its memory is not known")
        is_uuid = word.startswith("GPU-")
        found = next((r for r in rows if (r["uuid"].startswith(word) if is_uuid else r["index"] == word)), None)
        if found is None:
            return
        yield found


def _gpu(row: dict[str, str]) -> Gpu:
    if row["mig.mode.current"] == "Enabled":
        raise GpusUnknownError(f"GPU {row['index']} is split by MIG: the memory of its parts is not known")
    memory_mib, capability = _number(row["memory.total"]), _number(row["compute_cap"])
    if not row["index"].isdigit():
        raise GpusUnknownError(f"nvidia-smi answers {row['index']!r} in the place of a GPU's index")
    return Gpu(
        index=int(row["index"]),
        name=row["name"],
        memory_gib=None if memory_mib is None else memory_mib / MIB_PER_GIB,
        capability=capability,
    )


def _number(cell: str) -> float | None:
    """None for [N/A], [Not Supported], [Unknown Error] and what else stands where a GPU reports nothing."""
    try:
        return float(cell)
    except ValueError:
        return None


def _ask_nvidia_smi() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise GpusUnknownError("NVIDIA's driver is loaded, and nvidia-smi is not on PATH")
    argv = (program, f"--query-gpu={','.join(COLUMNS)}", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise GpusUnknownError(f"nvidia-smi did not answer within {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise GpusUnknownError(f"nvidia-smi cannot be run: {error}") from error
    if done.returncode != 0 or not done.stdout.strip():
        said = (done.stdout.strip() or done.stderr.strip() or "nothing").replace("\n", " ")
        raise GpusUnknownError(f"nvidia-smi ended with code {done.returncode} and said: {said:.300}")
    return done.stdout
