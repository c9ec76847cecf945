"""A real server process on a free port, ended after each test; user functions as real files."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reward_server import RunningServer, StartServer, server_env


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    started: list[RunningServer] = []

    def start(*args: str, ready: bool = True, cwd: Path = tmp_path, env: dict[str, str] | None = None) -> RunningServer:
        argv = [sys.executable, "-P", "-m", "rewards.server", "--port", "0", *args]
        process = subprocess.Popen(
            argv, cwd=cwd, env=server_env(**(env or {})), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        server = RunningServer(process, line.strip().rpartition(" ")[2])
        started.append(server)
        threading.Thread(target=_collect, args=(process, server.stderr), daemon=True).start()
        if ready:
            server.wait_ready()
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGKILL)
        server.process.wait(5)


def _collect(process: "subprocess.Popen[str]", lines: list[str]) -> None:
    assert process.stderr is not None
    lines.extend(process.stderr)


@pytest.fixture
def user_file(tmp_path: Path) -> Callable[[str], str]:
    """Write a reward file; returns its path for targets."""

    def write(source: str, name: str = "mine.py") -> str:
        path = tmp_path / name
        path.write_text(source)
        return str(path)

    return write
