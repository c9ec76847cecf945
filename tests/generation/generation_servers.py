"""Starting a real server for a test, ours or vLLM, and what the two do differently."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchers import vllm
from launchers.context import Context
from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.schema import GenerationConfig, RunConfig
from orchestrator.supervise.leases import lease_ports

ROOT = Path(__file__).parents[2]
VLLM_PYTHON = "VLLM_PYTHON"
READY_TIMEOUT_S = 150.0
STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Where the servers' answers to one request differ. The client hides or refuses each; here the server is asked."""

    clamps: bool
    """It shortens max_tokens to what its context leaves, and says nothing. The client refuses a completion so cut."""
    repeats_greedy: bool
    """It gives n equal completions at temperature 0; else it refuses n > 1. The client asks once and copies."""
    one_noise_for_all_prompts: bool
    """Choice i of every prompt of a request is drawn with the same noise: equal prompts get equal completions. The
    client sends each prompt by itself, with a seed of its own."""
    raises_temperature: bool
    """A temperature between 0 and 0.01 becomes 0.01, and nothing is said. The client refuses it."""


EMBEDDED = Traits(clamps=False, repeats_greedy=True, one_noise_for_all_prompts=False, raises_temperature=False)
VLLM = Traits(clamps=True, repeats_greedy=False, one_noise_for_all_prompts=True, raises_temperature=True)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A running server and what it serves. Its processes are a group of their own."""

    base_url: str
    model_path: Path
    weights_dir: Path
    traits: Traits
    process: "subprocess.Popen[Any]"


def start_embedded(model: Path, weights: Path, *more: str, name: str = "tiny") -> Target:
    """Start the embedded server on a free port, wait until it says it is ready."""
    argv = [sys.executable, "-P", "-m", "orchestrator.generation.server", "--model", str(model), "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ORCHESTRATE_RUN_ID": "run-7"}
    argv += ["--served-model-name", name, "--weights-dir", str(weights), "--dtype", "float32", *more]
    process = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "ready on" in line, line + process.stderr.read()
    url = f"http://{line.split()[-1]}"
    return Target(base_url=url, model_path=model, weights_dir=weights, traits=EMBEDDED, process=process)


def start_vllm(model: Path, run_dir: Path, *, name: str, max_model_len: int, **args: Any) -> Target:
    """Start the real vLLM on a free port as a run would, wait until it is ready. `args`: vLLM's own; None drops one."""
    with lease_ports(1)[0] as lease:
        url, context = f"http://127.0.0.1:{lease.port}", Context(run_dir=run_dir)
        step = vllm.step(_recipe(model, url, lease.port, max_model_len, {"served_model_name": name, **args}), context)
        context.paths.weights.mkdir(parents=True)
        log = run_dir / "vllm.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                step.argv, env=os.environ | step.env, stdout=output, stderr=output, start_new_session=True
            )
        target = Target(base_url=url, model_path=model, weights_dir=context.paths.weights, traits=VLLM, process=process)
        try:
            _wait_until_ready(target, log)
        except BaseException:
            stop(target)
            raise
    return target


def stop(target: Target) -> None:
    """SIGTERM, then SIGKILL for whatever of its group is left: vLLM's engine and workers are processes of their own."""
    target.process.terminate()
    try:
        target.process.wait(STOP_TIMEOUT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(target.process.pid, signal.SIGKILL)
        target.process.wait(STOP_TIMEOUT_S)


def vllm_python() -> str:
    """The interpreter that has vLLM. A test that needs it fails without it: `make test-vllm` sets it."""
    python = os.environ.get(VLLM_PYTHON, "")
    assert Path(python).is_file(), f"{VLLM_PYTHON} names no interpreter: run `make test-vllm`"
    return python


def _recipe(model: Path, url: str, port: int, max_model_len: int, args: dict[str, Any]) -> RunConfig:
    return RunConfig(
        generation=GenerationConfig(
            kind="vllm",
            python=vllm_python(),
            port=port,
            url=url,
            model=str(model),
            dtype="float32",
            max_model_len=max_model_len,
            env={"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"},
            # Compiling takes longer than the tests.
            args={"enforce_eager": True, **args},
        )
    )


def _wait_until_ready(target: Target, log: Path) -> None:
    client = GenerationClient(target.base_url, timeout_s=5)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not _answers(client):
        code = target.process.poll()
        assert code is None, f"vLLM ended with {code}:\n{log.read_text()[-3000:]}"
        assert time.monotonic() < deadline, f"not ready in time:\n{log.read_text()[-3000:]}"
        time.sleep(0.2)
    client.close()


def _answers(client: GenerationClient) -> bool:
    try:
        return client.health()
    except GenerationError:
        return False
