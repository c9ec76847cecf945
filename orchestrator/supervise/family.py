"""Which processes belong to a run. Standard library only: the guardian imports it.

No single sign is enough. The run id in the environment is inherited by everything, but setproctitle overwrites what
/proc shows of it. Parentage holds for those, but a daemon's parent is gone by the time anybody looks. So both are
used, parentage is remembered from look to look, and the orchestrator adopts orphans (PR_SET_CHILD_SUBREAPER).
"""

import os
from collections.abc import Iterable

from orchestrator.supervise.procs import (
    RUN_ID_VARIABLE,
    Identity,
    Proc,
    Table,
    ancestors,
    descendants,
    processes_with,
    read_table,
)


class Family:
    """The processes of one run, as far as they have been seen."""

    def __init__(self, run_id: str, owner: Identity | None = None, since: int = 0) -> None:
        """`owner` is the orchestrator. What it spawned before `since` (clock ticks since boot) is not of this run."""
        self.run_id = run_id
        self.owner = owner
        self.since = since
        self.spared: set[Identity] = set()
        self.known: set[Identity] = set()

    def spare(self, identities: Iterable[Identity]) -> None:
        """Processes that are not of the run, whatever they look like: its guardian."""
        self.spared.update(identities)

    def add(self, identities: Iterable[Identity]) -> None:
        """Processes that are known to be of the run, whatever they look like."""
        self.known.update(identities)

    def look(self, table: Table) -> None:
        """Remember who descends from the run. Call it often: a parent that has gone explains nothing any more."""
        roots = self.known | children_in_own_session(table, self.owner, self.since)
        self.known = descendants(table, roots - self.spared) - self.spared

    def members(self, table: Table) -> list[Proc]:
        """The living processes of the run, in the order to end them. Never the caller or what it runs under."""
        self.look(table)
        self.known |= processes_with(table, RUN_ID_VARIABLE, self.run_id) - self.spared
        self.look(table)
        untouchable = ancestors(table, os.getpid()) | ({self.owner.pid} if self.owner else set())
        living = [table[one.pid] for one in self.known if table[one.pid].alive and one.pid not in untouchable]
        return end_order(living)

    def find(self) -> list[Proc]:
        """`members` as of now."""
        return self.members(read_table())


def children_in_own_session(table: Table, owner: Identity | None, since: int) -> set[Identity]:
    """What the orchestrator spawned for the run, or adopted: helpers that it runs for itself share its session.

    An owner that has died has no children; init, which takes them, is not asked.
    """
    if owner is None or owner.pid not in table or table[owner.pid].start != owner.start:
        return set()
    session = table[owner.pid].session
    children = [proc for proc in table.values() if proc.ppid == owner.pid and proc.start >= since]
    return {proc.identity for proc in children if proc.session != session}


def end_order(processes: Iterable[Proc]) -> list[Proc]:
    """Latest service first, and within a service the parent before its children.

    A parent that hears of the end before its children do does not restart them.
    """
    by_pid = {proc.pid: proc for proc in processes}

    def path(proc: Proc) -> tuple[tuple[int, int], ...]:
        line = [proc]
        while (parent := by_pid.get(line[-1].ppid)) is not None and parent not in line:
            line.append(parent)
        top = line[-1]
        return ((-top.start, -top.pid), *((one.start, one.pid) for one in reversed(line[:-1])))

    return sorted(by_pid.values(), key=path)
