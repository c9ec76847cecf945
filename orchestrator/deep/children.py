"""Child processes that answer one child each, in JSON; and that are over, with all they started, at a deadline."""

import json
import os
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any

from orchestrator.deep.answers import NoAnswer
from orchestrator.exits import SIGNALLED
from orchestrator.supervise.family import Family
from orchestrator.supervise.procs import RUN_ID_VARIABLE, identity_of
from orchestrator.supervise.reap import end_run_processes

SIDE_BY_SIDE = 2  # children at a time; each may be importing torch
LOOK_S = 0.05
TAIL_LINES = 12
TAIL_BYTES = 4000


@dataclass(frozen=True, kw_only=True)
class Child:
    """A program to start, and what it gets as JSON on stdin."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """All of its environment."""
    request: Any


def ask(children: Sequence[Child], deadline_s: float) -> list[Any]:
    """The answer of each child, or a NoAnswer; each child has `deadline_s` seconds. Nothing outlives this call.

    Call it from the main thread. Raises SystemExit after a SIGTERM: the children are ended first.
    """
    asked_to_stop: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: asked_to_stop.append(number))
    try:
        return _ask(children, deadline_s, asked_to_stop)
    finally:
        signal.signal(signal.SIGTERM, before)


def _ask(children: Sequence[Child], deadline_s: float, asked_to_stop: Sequence[int]) -> list[Any]:
    answers: dict[int, Any] = {}
    waiting = list(enumerate(children))
    running: dict[int, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < SIDE_BY_SIDE:
                number, child = waiting.pop(0)
                try:
                    running[number] = _Running(child, deadline_s)
                except OSError as error:
                    answers[number] = NoAnswer(problem=f"{shlex.join(child.argv)} cannot be started: {error}")
            for number, started in list(running.items()):
                if started.is_over():
                    answers[number] = started.answer()
                    running.pop(number).end()
            if asked_to_stop:
                raise SystemExit(SIGNALLED + asked_to_stop[0])
            if running:
                time.sleep(LOOK_S)
    finally:
        for started in running.values():
            started.end()
    return [answers[number] for number in range(len(children))]


class _Running:
    """One started child. Its input and output are files without a name: no pipe can fill up and block it."""

    def __init__(self, child: Child, deadline_s: float) -> None:
        run_id = uuid.uuid4().hex
        self.family = Family(run_id)
        self.argv, self.deadline_s = child.argv, deadline_s
        self.ends_at = time.monotonic() + deadline_s
        self.stdout: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed by end()
        self.stderr: IO[bytes] = TemporaryFile()  # noqa: SIM115
        with TemporaryFile() as stdin:
            stdin.write(json.dumps(child.request).encode())
            stdin.seek(0)
            self.popen = subprocess.Popen(
                child.argv,
                env={**child.env, RUN_ID_VARIABLE: run_id},
                stdin=stdin,
                stdout=self.stdout,
                stderr=self.stderr,
                start_new_session=True,
            )
        self.family.add([identity_of(self.popen.pid)])

    def is_over(self) -> bool:
        return self.popen.poll() is not None or time.monotonic() >= self.ends_at

    def answer(self) -> Any:
        code = self.popen.poll()
        if code is None:
            return NoAnswer(problem=f"no answer within {self.deadline_s:g} s{self._tail()}")
        if code:
            how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
            return NoAnswer(problem=f"{shlex.join(self.argv)} {how}{self._tail()}")
        self.stdout.seek(0)
        try:
            return json.loads(self.stdout.read())
        except ValueError:
            return NoAnswer(problem=f"{shlex.join(self.argv)} ended without an answer{self._tail()}")

    def end(self) -> None:
        """Also what user code has started: it carries the run id, in whatever session it is."""
        end_run_processes(self.family.find, grace_s=0.0)
        self.popen.wait(timeout=1.0)
        self.stdout.close()
        self.stderr.close()

    def _tail(self) -> str:
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - TAIL_BYTES))
        lines = self.stderr.read().decode(errors="replace").strip().splitlines()[-TAIL_LINES:]
        return "; its last lines:\n    " + "\n    ".join(lines) if lines else ""
