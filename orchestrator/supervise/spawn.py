"""Starts one step as a child process."""

import os
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.steps import Step
from orchestrator.supervise.procs import RUN_ID_VARIABLE, STEP_VARIABLE, Identity, identity_of

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


class SpawnError(Exception):
    """The step could not be started; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Child:
    """A started step."""

    name: str
    identity: Identity
    popen: "subprocess.Popen[bytes]"
    started_at: float
    """Seconds since the epoch."""

    @property
    def pid(self) -> int:
        return self.identity.pid

    def poll(self) -> int | None:
        """Exit code (negative: the signal that ended it), None while it runs."""
        return self.popen.poll()


def child_env(inherited: Mapping[str, str], step: Step, run_id: str, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a step. Loopback goes past any HTTP proxy, or the services could not reach each other."""
    env = {**inherited, "PYTHONUNBUFFERED": "1", **extra, **step.env}
    env[RUN_ID_VARIABLE] = run_id
    env[STEP_VARIABLE] = step.name
    for name in ("NO_PROXY", "no_proxy"):
        listed = [host.strip() for host in env.get(name, "").split(",") if host.strip()]
        env[name] = ",".join([*listed, *(host for host in LOOPBACK_HOSTS if host not in listed)])
    return env


def spawn(step: Step, log_file: Path, run_id: str, extra_env: Mapping[str, str] | None = None) -> Child:
    """Start the step in a session of its own; stdout and stderr are appended to the log file.

    Raises SpawnError when the program cannot be started. Call it from the main thread: a child that asked for
    PR_SET_PDEATHSIG is killed when the thread that spawned it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        raise SpawnError("steps must be started from the main thread")
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        log = log_file.open("ab", buffering=0)
        log.write(f"# {time.strftime('%F %T')} start: {shlex.join(step.argv)}\n".encode())
    except OSError as error:
        raise SpawnError(f"cannot write {log_file}: {error}") from error
    with log:
        started_at = time.time()
        try:
            popen = subprocess.Popen(
                step.argv,
                env=child_env(os.environ, step, run_id, extra_env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError, IndexError) as error:
            raise SpawnError(f"cannot start {shlex.join(step.argv)!r}: {error}") from error
    return Child(name=step.name, identity=identity_of(popen.pid), popen=popen, started_at=started_at)
