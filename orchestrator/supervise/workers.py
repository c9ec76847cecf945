"""The loop's hands on a real machine: what starts the steps, and what ends them."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from orchestrator.steps import Step
from orchestrator.supervise.family import Family, children_in_own_session
from orchestrator.supervise.guard import Guard
from orchestrator.supervise.orphans import collect
from orchestrator.supervise.ports import port_owner
from orchestrator.supervise.procs import (
    STEP_VARIABLE,
    Proc,
    boot_id,
    descendants,
    has_variable,
    identity_of,
    read_table,
)
from orchestrator.supervise.reap import Ending, end_run_processes
from orchestrator.supervise.record import ProcessRecord, RunRecord, write_record
from orchestrator.supervise.rundir import log_path
from orchestrator.supervise.spawn import Child, SpawnError, spawn


class ProcessSpawner:
    """Starts steps, tells the guardian and writes them down."""

    def __init__(self, run_dir: Path, family: Family, guard: Guard, extra_env: Mapping[str, str]) -> None:
        self.run_dir = run_dir
        self.family = family
        self.guard = guard
        self.extra_env = extra_env
        self.children: list[Child] = []
        self.records: list[ProcessRecord] = []

    def start(self, step: Step) -> Child:
        self.clear(step.name)
        if step.port is not None and (owner := port_owner(step.port, step.host)) is not None:
            raise SpawnError(f"port {step.port} is already taken by {owner}")
        child = spawn(step, log_path(self.run_dir, step.name), self.family.run_id, self.extra_env)
        self.guard.child(child.identity)
        self.family.add([child.identity])
        self.children.append(child)
        pid, start = child.identity
        self.records.append(
            ProcessRecord(
                name=step.name, pid=pid, start=start, started_at=child.started_at, argv=step.argv, port=step.port
            )
        )
        self.write_record(ended=False)
        return child

    def clear(self, name: str) -> None:
        """Before a step starts again: a worker of the one before may hold its port or its GPU."""
        former = [child for child in self.children if child.name == name]
        if former:
            end_run_processes(lambda: self._remains(former), grace_s=0.0)
        for child in former:
            child.poll()

    def _remains(self, former: list[Child]) -> list[Proc]:
        table = read_table()
        below = descendants(table, [child.identity for child in former])
        members = self.family.members(table)
        return [one for one in members if one.identity in below or has_variable(one.pid, STEP_VARIABLE, former[0].name)]

    def write_record(self, *, ended: bool) -> None:
        record = RunRecord(
            run_id=self.family.run_id,
            boot_id=boot_id(),
            owner=identity_of(os.getpid()),
            guardian=self.guard.identity,
            since=self.family.since,
            ended=ended,
            processes=tuple(self.records),
        )
        write_record(self.run_dir, record)


class ProcessReaper:
    """Knows the processes of the run and ends them."""

    def __init__(self, family: Family, guard: Guard, spawner: ProcessSpawner) -> None:
        self.family = family
        self.guard = guard
        self.spawner = spawner
        self.family.spare([guard.identity])
        self.ending: Ending | None = None
        self.zombies: set[int] = set()

    @property
    def left(self) -> tuple[int, ...]:
        """Processes that even SIGKILL did not end."""
        return self.ending.left if self.ending else ()

    def look(self) -> None:
        table = read_table()
        self.family.look(table)
        zombies = self._adopted_zombies(table)
        # Seen twice: whoever else in this program may have started it has had time to ask for its exit status.
        collect(zombies & self.zombies)
        self.zombies = zombies
        if self.guard.revive():
            self.family.spare([self.guard.identity])
            self.spawner.write_record(ended=False)

    def begin(self, grace_s: float) -> None:
        self.ending = Ending(self.family.find, time.monotonic() + grace_s)

    def hurry(self) -> None:
        if self.ending:
            self.ending.hurry(time.monotonic())

    def step(self) -> bool:
        if self.ending is None or not self.ending.step(time.monotonic()):
            return False
        collect(self._adopted_zombies(read_table()))
        return True

    def _adopted_zombies(self, table: Mapping[int, Proc]) -> set[int]:
        ours = {child.identity for child in self.spawner.children} | self.family.spared
        children = children_in_own_session(table, self.family.owner, self.family.since)
        return {one.pid for one in children - ours if not table[one.pid].alive}
