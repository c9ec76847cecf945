"""The shipped model behind the real vLLM and behind the embedded server, side by side: `make test-vllm`.

The folder is not called vllm: pytest puts tests/ on the path, and TRL would take the folder for the package.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.assets import TINY_MATH
from orchestrator.generation.client import GenerationClient
from tests.generation.generation_servers import Target, start_embedded, start_vllm, stop

ROOM = 64
"""Context of both servers, in tokens."""
GAPS: dict[str, float] = {}
"""What was compared -> largest difference of two log-probs, in nats; shown at the end."""


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    running = start_vllm(TINY_MATH, tmp_path_factory.mktemp("vllm") / "run", name=str(TINY_MATH), max_model_len=ROOM)
    yield running
    stop(running)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """vLLM in dev mode without a weight-transfer backend, and with its own choice of log-probs."""
    running = start_vllm(
        TINY_MATH,
        tmp_path_factory.mktemp("plain") / "run",
        name=str(TINY_MATH),
        max_model_len=ROOM,
        weight_transfer_config=None,
        logprobs_mode=None,
    )
    yield running
    stop(running)


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    flags = ("--max-model-len", str(ROOM), "--max-logprobs", "-1")
    running = start_embedded(TINY_MATH, tmp_path_factory.mktemp("embedded"), *flags, name=str(TINY_MATH))
    yield running
    stop(running)


@pytest.fixture
def both(vllm: Target, embedded: Target) -> Iterator[tuple[GenerationClient, GenerationClient]]:
    """vLLM's client, then the embedded server's."""
    clients = GenerationClient(vllm.base_url, timeout_s=60), GenerationClient(embedded.base_url, timeout_s=60)
    yield clients
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def gaps() -> dict[str, float]:
    return GAPS


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for what, gap in GAPS.items():
        terminalreporter.write_line(f"{what:<60} largest difference {gap:.2e} nats")
