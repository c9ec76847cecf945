"""processes.json: what a run started, written down so that `stop` and `status` work after its orchestrator."""

import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.supervise.family import Family
from orchestrator.supervise.procs import Identity, ancestors, boot_id, is_alive, read_table, send_signal
from orchestrator.supervise.reap import PASS_INTERVAL_S, end_run_processes
from orchestrator.supervise.rundir import write_json

FILE_NAME = "processes.json"


@dataclass(frozen=True, kw_only=True)
class ProcessRecord:
    """One started step."""

    name: str
    pid: int
    start: int
    """Clock ticks since boot: together with the pid it names the process."""
    started_at: float
    argv: tuple[str, ...]
    port: int | None


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The processes of a run. Numbers mean something on the machine and the boot of `boot_id` only."""

    run_id: str
    boot_id: str
    owner: Identity
    """The orchestrator."""
    guardian: Identity
    since: int
    """Clock ticks since boot when the run began."""
    ended: bool
    """The orchestrator has taken the run down; it may since have gone on to another one."""
    processes: tuple[ProcessRecord, ...]


@dataclass(frozen=True, kw_only=True)
class LiveProcess:
    """A process of the run that is there now; step None: a step started it."""

    pid: int
    step: str | None
    command: str


def write_record(run_dir: Path, record: RunRecord) -> None:
    write_json(run_dir / FILE_NAME, asdict(record))


def read_record(run_dir: Path) -> RunRecord | None:
    """None when the run has not started anything."""
    try:
        data = json.loads((run_dir / FILE_NAME).read_text())
    except FileNotFoundError:
        return None
    data["owner"], data["guardian"] = Identity(*data["owner"]), Identity(*data["guardian"])
    data["processes"] = tuple(ProcessRecord(**{**one, "argv": tuple(one["argv"])}) for one in data["processes"])
    return RunRecord(**data)


def family_of(record: RunRecord) -> Family:
    """How to find the processes of a recorded run."""
    family = Family(record.run_id, None if record.ended else record.owner, record.since)
    family.spare([record.guardian])
    family.add(Identity(one.pid, one.start) for one in record.processes)
    return family


def live_processes(run_dir: Path) -> tuple[LiveProcess, ...]:
    """What is there of the run; () too when it ran on another machine or before the last boot."""
    record = read_record(run_dir)
    if record is None or record.boot_id != boot_id():
        return ()
    names = {(one.pid, one.start): one.name for one in record.processes}
    return tuple(
        LiveProcess(pid=proc.pid, step=names.get(proc.identity), command=command_of(proc.pid))
        for proc in family_of(record).find()
    )


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def stop_run(run_dir: Path, grace_s: float) -> list[int]:
    """End a run from outside: ask its orchestrator, if it lives, then end what is left. Returns the ended pids.

    Takes grace_s, and at most KILL_LIMIT_S more for what ignores SIGTERM.
    """
    record = read_record(run_dir)
    if record is None or record.boot_id != boot_id():
        return []
    family = family_of(record)
    there = {proc.identity for proc in family.find()}
    deadline = time.monotonic() + grace_s
    if not record.ended and record.owner.pid not in ancestors(read_table(), os.getpid()) and is_alive(record.owner):
        there.add(record.owner)
        send_signal(record.owner, signal.SIGTERM)
        while is_alive(record.owner) and not _has_ended(run_dir) and time.monotonic() < deadline:
            time.sleep(PASS_INTERVAL_S)
    ended = end_run_processes(family.find, max(0.0, deadline - time.monotonic()))
    return sorted({one.pid for one in there if not is_alive(one)} | set(ended.pids))


def _has_ended(run_dir: Path) -> bool:
    record = read_record(run_dir)
    return record is None or record.ended
