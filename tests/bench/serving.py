"""Servers in processes of their own, for benchmarks of the reward server."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import requests

ROOT = Path(__file__).parents[2]
READY_WITHIN_S = 60.0


@contextmanager
def serving(*argv: str, health: str | None = "/health") -> Iterator[int]:
    """The port of `python -m argv`, once it is ready. Its first line of output ends with its address."""
    command = [sys.executable, "-P", "-m", *argv]
    with tempfile.TemporaryFile("w+") as log:  # not a pipe: one that nobody reads would stop a server that logs
        process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + READY_WITHIN_S
            while not (url := _ready_at(log.fileno(), health)):
                words = os.pread(log.fileno(), 4000, 0).decode()
                assert process.poll() is None, words
                assert time.monotonic() < deadline, words
                time.sleep(0.05)
            yield int(url.rpartition(":")[2])
        finally:
            process.kill()
            process.wait()


def _ready_at(log: int, health: str | None) -> str | None:
    first, newline, _ = os.pread(log, 4000, 0).decode().partition("\n")
    if not newline:
        return None
    url = first.split()[-1]
    return url if not health or requests.get(url + health, timeout=5).status_code == 200 else None


def reward_server(function: str, workers: int) -> AbstractContextManager[int]:
    return serving("rewards.server", "--function", function, "--workers", str(workers), "--port", "0")
