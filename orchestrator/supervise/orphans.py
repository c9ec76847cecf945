"""Grandchildren whose parent has ended: adopted, so that they are found, and collected, so that they do not pile up."""

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37


def collect(pids: Iterable[int]) -> None:
    """Take the exit statuses of children that were adopted, not spawned."""
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Orphans below this process become its children instead of init's (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)
