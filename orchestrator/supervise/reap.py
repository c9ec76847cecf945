"""Ends the processes of a run: TERM, one shared deadline, KILL, until none is found. Standard library only."""

import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from orchestrator.supervise.procs import Identity, Proc, send_signal
from orchestrator.supervise.segments import mapped_by, remove_unused

PASS_INTERVAL_S = 0.05
KILL_LIMIT_S = 2.0
"""How long after SIGKILL a process may still be seen before it is reported as one that cannot be ended."""

Find = Callable[[], list[Proc]]


class Ended(NamedTuple):
    """What came of it."""

    pids: tuple[int, ...]
    """Processes that were signalled and are gone."""
    left: tuple[int, ...]
    """Processes that outlived SIGKILL, in an uninterruptible wait of the kernel."""


class Ending:
    """The end of a run in short passes, so that an event loop can go on between them."""

    def __init__(self, find: Find, deadline: float) -> None:
        """`find` names the living processes, in the order to end them; `deadline` is when TERM becomes KILL."""
        self.find = find
        self.deadline = deadline
        self.asked: set[Identity] = set()
        self.left: tuple[int, ...] = ()
        self._segments: set[str] = set()

    def hurry(self, now: float) -> None:
        """Grant no more grace."""
        self.deadline = min(self.deadline, now)

    def step(self, now: float) -> bool:
        """One pass; True when it is over. Each process gets TERM once: many programs take a second one as KILL."""
        # Twice: a process that forks and exits while the table is read can hide its child from one look.
        found = self.find() or self.find()
        if not found or now >= self.deadline + KILL_LIMIT_S:
            self.left = tuple(proc.pid for proc in found)
            remove_unused(self._segments)
            return True
        for proc in found:
            if now >= self.deadline:
                self._segments |= mapped_by(proc.pid)
                send_signal(proc.identity, signal.SIGKILL)
            elif proc.identity not in self.asked:
                send_signal(proc.identity, signal.SIGTERM)
                # A stopped process (SIGSTOP, Ctrl-Z) would hear of TERM only when somebody continues it.
                send_signal(proc.identity, signal.SIGCONT)
            self.asked.add(proc.identity)
        return False

    def result(self) -> Ended:
        """Valid once `step` has returned True."""
        return Ended(tuple(sorted({one.pid for one in self.asked} - set(self.left))), self.left)


def end_run_processes(
    find: Find,
    grace_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ended:
    """End everything that `find` finds, in at most grace_s + KILL_LIMIT_S seconds."""
    ending = Ending(find, clock() + grace_s)
    while not ending.step(clock()):
        sleep(PASS_INTERVAL_S)
    return ending.result()
