"""The orchestrator's end of the guardian: starts it, tells it of children, lets it go."""

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.supervise.procs import RUN_ID_VARIABLE, Identity, identity_of
from orchestrator.supervise.reap import KILL_LIMIT_S

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
GOODBYE_S = 2.0


class Guard:
    """A running guardian. Leaving the `with` block in order lets it go; leaving it by an error has it end the run."""

    def __init__(self, run_id: str, grace_s: float, since: int, log_file: Path, scratch: Path | None = None) -> None:
        """`scratch` is a folder that goes with a run that breaks down."""
        self.run_id = run_id
        self.grace_s = grace_s
        self.since = since
        self.log_file = log_file
        self.scratch = scratch
        self.children: list[Identity] = []
        self.popen = self._start()

    @property
    def identity(self) -> Identity:
        return identity_of(self.popen.pid)

    def child(self, identity: Identity) -> None:
        """Tell of a process of the run. It would be found by its environment too, unless it overwrites that."""
        self.children.append(identity)
        self._write(f"child {identity.pid} {identity.start}\n")

    def revive(self) -> bool:
        """Start another one when it has died (out of memory, say). True when that was necessary."""
        if self.popen.poll() is None:
            return False
        self._close_pipe()
        self.popen = self._start()
        for identity in self.children:
            self._write(f"child {identity.pid} {identity.start}\n")
        return True

    def __enter__(self) -> "Guard":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        limit_s = GOODBYE_S
        if kind is None:
            self._write("done\n")
        else:
            # Supervision itself broke down: the guardian does what it would do had this process died.
            limit_s += self.grace_s + KILL_LIMIT_S
        self._close_pipe()
        try:
            self.popen.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(GOODBYE_S)

    def _start(self) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-S", "-P", "-m", "orchestrator.supervise.guardian", "--run-id", self.run_id]
        argv += ["--grace-s", str(self.grace_s), "--since", str(self.since)]
        argv += ["--owner", *map(str, identity_of(os.getpid()))]
        argv += ["--scratch", str(self.scratch)] if self.scratch else []
        # Without site (-S) it starts faster and runs no .pth file of the environment; so it is told where we are.
        env = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
        # An orchestrator may itself be a child of a run, whose end must leave this guardian time to do its work.
        env.pop(RUN_ID_VARIABLE, None)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                argv, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd="/"
            )

    def _write(self, line: str) -> None:
        if self.popen.stdin is None:
            return
        try:
            self.popen.stdin.write(line.encode())
            self.popen.stdin.flush()
        except OSError:
            pass  # It has died; `revive` starts another and tells it everything again.

    def _close_pipe(self) -> None:
        if self.popen.stdin is not None:
            try:
                self.popen.stdin.close()
            except OSError:
                pass
