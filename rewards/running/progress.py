"""What a worker is doing right now, in memory that the pool reads: also while user code holds the GIL, or after a kill.

A late or lost reply does not say which unit is to blame; this does, and since when it runs.
"""

import mmap
import os
import struct
import tempfile
import time
import types
from collections.abc import Coroutine, Generator
from typing import Any, NamedTuple

from rewards.running import forks

BETWEEN_UNITS = -1
NO_MESSAGE = -1


class Running(NamedTuple):
    """`unit` counts through the units of message number `message`, or is BETWEEN_UNITS."""

    since: float
    """On the clock of time.monotonic(), which is the same for all processes of a machine."""
    message: int
    unit: int


LAYOUT = struct.Struct("=dqq")


def shared_file() -> int:
    """A file descriptor for two Progress objects, one on each side. It says that no message has been begun."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("reward-worker-progress")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.write(fd, LAYOUT.pack(0.0, NO_MESSAGE, BETWEEN_UNITS))
    return fd


class Progress:
    """Written by the worker, read by the pool. `fd` may be closed afterwards."""

    def __init__(self, fd: int) -> None:
        self._memory: mmap.mmap | bytearray = mmap.mmap(fd, LAYOUT.size)
        self._message = NO_MESSAGE

    def disown(self) -> None:
        """In a forked child of the worker: what it does is nobody's progress."""
        self._memory = bytearray(LAYOUT.size)

    def begin(self, message: int) -> None:
        self._message = message
        self.enter(BETWEEN_UNITS)

    def enter(self, unit: int) -> None:
        LAYOUT.pack_into(self._memory, 0, time.monotonic(), self._message, unit)

    @types.coroutine
    def watch(self, unit: int, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, None, Any]:
        """Await `coroutine`, entering each of its steps: in between, the event loop runs those of other units."""
        error: BaseException | None = None
        depth = forks.depth
        while True:
            self.enter(unit)
            try:
                waits_for = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self.enter(BETWEEN_UNITS)
            if forks.depth != depth:  # the event loop that it waits for is its parent's
                forks.end_child()
            try:
                yield waits_for
                error = None
            except BaseException as thrown:  # a cancellation, most of all: it is the coroutine's to handle
                error = thrown

    def read(self) -> Running:
        """May be torn between two entries: act on what is read twice."""
        return Running(*LAYOUT.unpack_from(self._memory))
