"""A real server process on a free port, ended after each test; user functions as real files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reward_server import RunningServer, StartServer, launch


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    started: list[RunningServer] = []

    def start(*args: str, ready: bool = True, cwd: Path = tmp_path, env: dict[str, str] | None = None) -> RunningServer:
        server = launch(*args, cwd=cwd, env=env)
        started.append(server)
        if ready:
            server.wait_ready()
        return server

    yield start
    for server in started:
        server.end()


@pytest.fixture
def user_file(tmp_path: Path) -> Callable[[str], str]:
    """Write a reward file; returns its path for targets."""

    def write(source: str, name: str = "mine.py") -> str:
        path = tmp_path / name
        path.write_text(source)
        return str(path)

    return write
