"""A reward server in a process of its own, as the tests see it."""

import os
import subprocess
import time
from collections.abc import Callable
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


StartServer = Callable[..., RunningServer]


def server_env(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **extra}
