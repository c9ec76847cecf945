"""A reward server in a process of its own, as the tests see it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rewards.client import RewardClient

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 30.0


@dataclass
class RunningServer:
    process: "subprocess.Popen[str]"
    url: str
    stderr: list[str] = field(default_factory=list)

    def client(self, token: str | None = None, timeout_s: float = 30.0) -> RewardClient:
        return RewardClient(self.url, token, timeout_s)

    def wait_ready(self) -> None:
        client, deadline = self.client(timeout_s=5.0), time.monotonic() + START_LIMIT_S
        while not client.health():
            assert self.process.poll() is None, "".join(self.stderr)
            assert time.monotonic() < deadline, "".join(self.stderr)
            time.sleep(0.05)

    def workers(self) -> list[int]:
        """Pids of the worker processes: our server's children."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    parent = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, ValueError):
                    continue
                if parent == self.process.pid:
                    found.append(int(folder.name))
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(5)


StartServer = Callable[..., RunningServer]


def launch(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> RunningServer:
    """A server on a free port, listening but perhaps not ready; its stderr is collected."""
    argv = [sys.executable, "-P", "-m", "rewards.server", "--port", "0", *args]
    process = subprocess.Popen(
        argv, cwd=cwd, env=server_env(**(env or {})), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    server = RunningServer(process, line.strip().rpartition(" ")[2])
    threading.Thread(target=_collect, args=(process, server.stderr), daemon=True).start()
    return server


def _collect(process: "subprocess.Popen[str]", lines: list[str]) -> None:
    assert process.stderr is not None
    lines.extend(process.stderr)


def server_env(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **extra}
