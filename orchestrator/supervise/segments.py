"""Shared memory that killed processes leave: it belongs to no process and lasts until the next boot.

vLLM's engine and its server talk through hundreds of MiB of it, and a SIGKILL leaves them no time to remove it.
Standard library only.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

SHARED = "/dev/shm/"  # noqa: S108 - only files that a process of the run has mapped
ANONYMOUS = ("psm_", "sem.mp-", "torch_", "nccl-")
"""How Python's multiprocessing, PyTorch and NCCL name segments. A file of the user's own name is left alone: it may be
a model or a data set that lives there."""


def mapped_by(pid: int) -> set[str]:
    """Paths of the anonymous segments that a process has mapped; none where it is gone or not ours to see."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    paths = (line.rpartition(" ")[2] for line in lines if SHARED in line and not line.endswith("(deleted)"))
    return {path for path in paths if os.path.basename(path).startswith(ANONYMOUS)}


def remove_unused(paths: Iterable[str]) -> tuple[str, ...]:
    """Remove those that no living process has mapped any more. Returns what was removed."""
    left = set(paths)
    if left:
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            left -= mapped_by(pid)
    for path in left:
        with contextlib.suppress(OSError):  # its owner has removed it
            os.unlink(path)
    return tuple(sorted(left))
