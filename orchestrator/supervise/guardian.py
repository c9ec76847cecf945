"""The process that outlives a killed orchestrator and ends what it left. Standard library only.

    python -P -m orchestrator.supervise.guardian --run-id ID --grace-s 3 --owner PID START --since TICKS

Its stdin is a pipe that only the orchestrator can write to. Lines: `child PID START` (a process of the run), `done`
(the run was taken down in order). The end of the pipe without `done` means that the orchestrator died.
"""

import argparse
import contextlib
import os
import select
import shutil
import signal
import sys
import time

from orchestrator.supervise.family import Family
from orchestrator.supervise.procs import Identity, is_alive, read_table
from orchestrator.supervise.reap import end_run_processes

LOOK_INTERVAL_S = 0.5
READ_BYTES = 65536


def take_lines(buffer: bytes, family: Family) -> tuple[bytes, bool]:
    """Act on every whole line. Returns what is left of the buffer, and whether the run is done."""
    *lines, rest = buffer.split(b"\n")
    for line in lines:
        words = line.split()
        if words == [b"done"]:
            return rest, True
        if len(words) == 3 and words[0] == b"child":
            family.add([Identity(int(words[1]), int(words[2]))])
    return rest, False


def watch(pipe: int, family: Family, owner: Identity) -> bool:
    """Follow the run until it is done (True) or the orchestrator has died (False).

    The pipe alone does not tell: a process forked off the orchestrator without exec may hold its other end.
    """
    buffer = b""
    while True:
        readable, _, _ = select.select([pipe], [], [], LOOK_INTERVAL_S)
        if readable:
            chunk = os.read(pipe, READ_BYTES)
            buffer, done = take_lines(buffer + chunk, family)
            if done or not chunk:
                return done
        elif not is_alive(owner):
            return False
        family.look(read_table())


def ignore_signals() -> None:
    """What is meant for the orchestrator (Ctrl-C, a closed terminal, kill) must not end its guardian."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def main() -> int:
    parser = argparse.ArgumentParser(prog="orchestrate-guardian")
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--grace-s", type=float, required=True)
    parser.add_argument("--owner", type=int, nargs=2, required=True, metavar=("PID", "START"))
    parser.add_argument("--since", type=int, required=True, help="clock ticks from boot to the start of the run")
    parser.add_argument("--scratch", help="folder to remove if the orchestrator dies")
    arguments = parser.parse_args()
    ignore_signals()
    os.chdir("/")
    owner = Identity(*arguments.owner)
    family = Family(arguments.run_id, owner, arguments.since)
    if watch(sys.stdin.fileno(), family, owner):
        return 0
    note(f"orchestrator {owner.pid} is gone; ending its processes")
    ended = end_run_processes(family.find, arguments.grace_s)
    note(f"ended {ended.pids}; could not end {ended.left}")
    if arguments.scratch:
        shutil.rmtree(arguments.scratch, ignore_errors=True)
    return 0


def note(text: str) -> None:
    """Into the log, if it can be written: on a full disk the processes still have to be ended."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%F %T')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
