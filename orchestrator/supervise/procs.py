"""Reads /proc. Standard library only: the guardian imports it.

A process is named by (pid, start time): a pid alone may have been given to somebody else in the meantime.
"""

import os
import signal
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

RUN_ID_VARIABLE = "ORCHESTRATE_RUN_ID"
STEP_VARIABLE = "ORCHESTRATE_STEP"


class Identity(NamedTuple):
    """One process for all time, until the next boot."""

    pid: int
    start: int
    """Clock ticks between boot and the start of the process (field 22 of /proc/PID/stat)."""


class Proc(NamedTuple):
    """What /proc/PID/stat says about a process."""

    pid: int
    ppid: int
    session: int
    start: int
    state: str

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.start)

    @property
    def alive(self) -> bool:
        """False for a zombie: it has ended and only waits to be collected."""
        return self.state not in "ZX"


Table = Mapping[int, Proc]


def read_proc(pid: int) -> Proc | None:
    """None when there is no such process (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The command name stands in brackets and may itself contain brackets and blanks: only the last one counts.
    fields = text.rpartition(b")")[2].split()
    state = fields[0].decode()
    return Proc(pid=pid, ppid=int(fields[1]), session=int(fields[3]), start=int(fields[19]), state=state)


def read_table() -> dict[int, Proc]:
    """Every process that can be seen, by pid."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {proc.pid: proc for pid in pids if (proc := read_proc(pid)) is not None}


def identity_of(pid: int) -> Identity:
    """Identity of a process; start 0, which no process has, when it is already gone."""
    proc = read_proc(pid)
    return proc.identity if proc else Identity(pid, 0)


def is_alive(identity: Identity) -> bool:
    """Whether exactly this process still runs."""
    proc = read_proc(identity.pid)
    return proc is not None and proc.alive and proc.start == identity.start


def has_variable(pid: int, name: str, value: str) -> bool:
    """Whether the process was started with name=value in its environment. False where that may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{name}={value}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def processes_with(table: Table, name: str, value: str) -> set[Identity]:
    """The living processes of the table that were started with name=value."""
    return {proc.identity for proc in table.values() if proc.alive and has_variable(proc.pid, name, value)}


def descendants(table: Table, roots: Iterable[Identity]) -> set[Identity]:
    """The roots that are still in the table, and everything below them."""
    children: dict[int, list[Proc]] = {}
    for proc in table.values():
        children.setdefault(proc.ppid, []).append(proc)
    found: set[Identity] = set()
    pending = [table[root.pid] for root in roots if root.pid in table and table[root.pid].start == root.start]
    while pending:
        proc = pending.pop()
        if proc.identity not in found:
            found.add(proc.identity)
            pending += children.get(proc.pid, [])
    return found


def ancestors(table: Table, pid: int) -> set[int]:
    """The pid itself, its parent, and so on up."""
    found: set[int] = set()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid].ppid
    return found


def send_signal(identity: Identity, number: signal.Signals) -> bool:
    """Signal exactly this process; False when it is gone, or is not ours to signal.

    The pidfd pins the process before its start time is compared, so a pid that is reused in between is never hit.
    """
    try:
        pin = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(pin, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pin)
    return True


def ticks_since_boot() -> int:
    """Now, in the unit of `Identity.start`."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def boot_id() -> str:
    """Changes with every boot and differs between machines, as the meaning of a pid does."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
