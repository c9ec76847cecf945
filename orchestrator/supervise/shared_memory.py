"""The folder that weight files travel through: in shared memory where they fit, else in the run directory."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.paths import RunPaths

SHARED = Path("/dev/shm")  # noqa: S108 - folders below it are made by mkdtemp, for this user alone
PREFIX = "orchestrate-weights-"
ROOM = 2.0
"""Free bytes for each byte of the model: tied weights travel twice, and another run may start now too."""
IN_USE = ".in_use"
"""Locked while the folder is used: a process id would mean nothing to a container that shares the memory."""
JUST_MADE_S = 60.0


@contextmanager
def weights_folder(paths: RunPaths, needed: float | None, shared: Path = SHARED) -> Iterator[Path]:
    """`paths.weights` while a run lasts; yields where its files really are. Nothing in it outlives the run.

    `needed` bytes has one file; None keeps it in the run directory. Raises OSError where that cannot be written.
    """
    _forget(paths)
    _remove_abandoned(shared)
    folder = _make(paths, needed, shared)
    try:
        with FileLock(folder / IN_USE, timeout=0):
            yield folder
    finally:
        _remove(paths)


def _make(paths: RunPaths, needed: float | None, shared: Path) -> Path:
    if needed is not None and shared.is_dir() and shutil.disk_usage(shared).free >= ROOM * needed:
        try:
            folder = tempfile.mkdtemp(prefix=PREFIX, dir=shared)
        except OSError:  # it may not be ours to write: slower, nothing else
            pass
        else:
            paths.weights.symlink_to(folder)
            return Path(folder)
    paths.weights.mkdir()
    return paths.weights


def _forget(paths: RunPaths) -> None:
    """What the part before a resume has left; not what another run uses, which the link of a copied folder leads to."""
    try:
        with FileLock(paths.weights.resolve() / IN_USE, timeout=0):
            _remove(paths)
    except (OSError, Timeout):  # there is no such folder, or it is in use
        paths.weights.unlink(missing_ok=True)


def _remove(paths: RunPaths) -> None:
    shutil.rmtree(paths.weights.resolve(), ignore_errors=True)
    paths.weights.unlink(missing_ok=True)


def _remove_abandoned(shared: Path) -> None:
    """Folders whose orchestrator and guardian were both killed would hold memory until the next boot."""
    for folder in shared.glob(f"{PREFIX}*"):
        try:
            if not folder.is_symlink() and time.time() - folder.stat().st_mtime > JUST_MADE_S:
                with FileLock(folder / IN_USE, timeout=0):
                    shutil.rmtree(folder, ignore_errors=True)
        except (OSError, Timeout):  # another run's, or another user's, or gone
            continue
