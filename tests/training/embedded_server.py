"""The real embedded server, beside a test."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.generation.client import GenerationClient, GenerationError
from tests.orchestrated import wait_for


@contextmanager
def embedded_server(port: int, weights_dir: Path, model: Path) -> Iterator[None]:
    """Ready on loopback, in float32, with room for 24 tokens."""
    flags = ("--model", model, "--served-model-name", model, "--port", port, "--dtype", "float32")
    room = ("--max-model-len", "24", "--weights-dir", weights_dir)
    argv = [sys.executable, "-P", "-m", "orchestrator.generation.server", *map(str, (*flags, *room))]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE)
    client = GenerationClient(f"http://127.0.0.1:{port}", timeout_s=5)

    def ready() -> bool:
        try:
            return client.health()
        except GenerationError:
            return process.poll() is not None

    try:
        wait_for("the server is ready", ready)
        yield
    finally:
        client.close()
        process.kill()
        process.communicate()
