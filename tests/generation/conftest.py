"""A tiny model on disk and real servers that serve it. The conformance suite runs once per kind of server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_llama
from generation_servers import Target, start_embedded, start_vllm, stop
from transformers import LlamaForCausalLM

from orchestrator.generation.client import GenerationClient


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module's SERVERS names the kinds of server that its tests run against, ours where it names none."""
    if "target" in metafunc.fixturenames:
        servers = getattr(metafunc.module, "SERVERS", ("embedded",))
        metafunc.parametrize("target", servers, indirect=True, scope="session")


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.write(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def target(
    request: pytest.FixtureRequest, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        running = start_embedded(model_path, folder, "--max-logprobs", "-1")
    else:
        running = start_vllm(model_path, folder / "run", name="tiny", max_model_len=64)
    yield running
    stop(running)


@pytest.fixture
def client(target: Target) -> Iterator[GenerationClient]:
    connected = GenerationClient(target.base_url, timeout_s=30)
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def reference(model_path: Path) -> LlamaForCausalLM:
    """The served model, in this process."""
    return LlamaForCausalLM.from_pretrained(model_path).eval()
