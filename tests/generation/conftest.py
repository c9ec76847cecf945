"""A tiny model on disk and real servers that serve it. The conformance suite runs once per kind of server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_llama
from transformers import LlamaForCausalLM

from orchestrator.generation.client import GenerationClient

ROOT = Path(__file__).parents[2]
# Kinds of server the conformance suite runs against.
KINDS = ("embedded",)


@dataclass(frozen=True)
class Target:
    """A running server and what it serves."""

    base_url: str
    model_path: Path
    weights_dir: Path
    process: subprocess.Popen[str]


def start_embedded(model: Path, weights: Path, *more: str) -> Target:
    """Start the embedded server on a free port, wait until it says it is ready."""
    argv = [sys.executable, "-P", "-m", "orchestrator.generation.server", "--model", str(model), "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ORCHESTRATE_RUN_ID": "run-7"}
    argv += ["--served-model-name", "tiny", "--weights-dir", str(weights), "--dtype", "float32", *more]
    process = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "ready on" in line, line + process.stderr.read()
    return Target(f"http://{line.split()[-1]}", model, weights, process)


def stop(target: Target) -> None:
    target.process.terminate()
    target.process.wait(10)


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.write(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session", params=KINDS)
def target(
    request: pytest.FixtureRequest, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    assert request.param == "embedded"
    running = start_embedded(model_path, tmp_path_factory.mktemp("weights"), "--max-logprobs", "-1")
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
