"""A recipe, its facts and real servers for the tests of the handshake."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.assets import TINY_MATH
from orchestrator.data.facts import describe
from orchestrator.facts import Facts, model_facts
from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.schema import (
    DataConfig,
    EvaluationConfig,
    GenerationConfig,
    ModelConfig,
    RewardConfig,
    RewardFunctionConfig,
    RunConfig,
    WeightSyncConfig,
)
from orchestrator.supervise.handshake import Verdict, handshake
from orchestrator.supervise.procs import Identity, boot_id, identity_of
from orchestrator.supervise.record import ProcessRecord, RunRecord, write_record
from rewards.client import RewardClient
from tests.orchestrated import read, wait_for

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parents[2]
MODEL = str(TINY_MATH)
ROOM = 24
ROWS = [{"prompt": [{"role": "user", "content": "1+1="}], "answer": "2"}]
NOT_A_SERVER = {"kind": "inprocess"}


def recipe(
    generation: Mapping[str, Any] | None = None, reward: Mapping[str, Any] | None = None, model: str = MODEL
) -> RunConfig:
    """A part that is not given is inside the trainer, so that nobody is asked about it."""
    served = {"model": model, "dtype": "float32", "max_model_len": ROOM, "weight_sync": WeightSyncConfig()}
    functions = [RewardFunctionConfig(name="accuracy", target="accuracy")]
    return RunConfig(
        model=ModelConfig(name=model),
        data=DataConfig(chat=True),
        evaluation=EvaluationConfig(rows=0),
        generation=GenerationConfig(**{**served, **(generation or NOT_A_SERVER)}),
        reward=RewardConfig(**{"functions": functions, **(reward or NOT_A_SERVER)}),
    )


def facts_of(run: RunConfig, **changes: Any) -> Facts:
    known = {run.model.name: model_facts(run.model.name, None)}
    facts = Facts(versions={"trl": "1.16.0"}, requirements={"vllm": ">=0.22.0,<=0.31.0"}, models=known)
    return replace(facts, data=describe(ROWS), **changes)


def shake(run: RunConfig, folder: Path, **changes: Any) -> tuple[Verdict, dict[str, Any]]:
    """The verdict, and what was written down."""
    verdict = handshake(run, folder, facts_of(run, **changes))
    return verdict, read(folder / "handshake.json")


def differing(written: Mapping[str, Any]) -> list[str]:
    return [fact["name"] for fact in written["facts"] if not fact["agrees"]]


def skipped(written: Mapping[str, Any]) -> list[str]:
    return [fact["name"] for fact in written["skipped"]]


def record_child(folder: Path, service: str, pid: int, port: int, run_id: str = "no-such-run") -> None:
    """As the supervisor writes down what it started."""
    me = identity_of(os.getpid())
    child = ProcessRecord(name=service, pid=pid, start=me.start, started_at=0.0, argv=("x",), port=port)
    nobody = Identity(2**22 + 1, 0)
    write_record(
        folder,
        RunRecord(
            run_id=run_id, boot_id=boot_id(), owner=me, guardian=nobody, since=0, ended=False, processes=(child,)
        ),
    )


@contextmanager
def serving(*argv: str, ready: str = "ready") -> Iterator["subprocess.Popen[str]"]:
    """A server that prints `ready` on its first line of stdout once it listens."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT)
    try:
        assert process.stdout is not None
        assert ready in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait(10)


def vllm_shaped(port: int, *flags: str, model: str = MODEL) -> Any:
    """Not vLLM: what answers in its shapes."""
    return serving(str(PROGRAMS / "vllm_shaped.py"), "--model", model, "--port", str(port), *flags)


def odd_server(kind: str, port: int) -> Any:
    return serving(str(PROGRAMS / "odd_server.py"), kind, str(port))


@contextmanager
def embedded(port: int, *flags: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The real embedded server."""
    argv = ["-P", "-m", "orchestrator.generation.server", "--model", MODEL, "--port", str(port), *flags]
    process = subprocess.Popen(
        [sys.executable, *argv], env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    client = GenerationClient(f"http://127.0.0.1:{port}", timeout_s=5)
    try:
        wait_for("the embedded server is ready", lambda: _answers(client) or process.poll() is not None)
        yield process
    finally:
        process.kill()
        process.wait(10)


def _answers(client: GenerationClient) -> bool:
    try:
        return client.health()
    except GenerationError:
        return False


@contextmanager
def reward_server(
    port: int, *flags: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> Iterator["subprocess.Popen[bytes]"]:
    """The real reward server."""
    argv = ["-P", "-m", "rewards.server", "--port", str(port), *flags]
    process = subprocess.Popen(
        [sys.executable, *argv], env=os.environ | (env or {}), stdout=subprocess.DEVNULL, cwd=cwd
    )
    try:
        client = RewardClient(f"http://127.0.0.1:{port}", timeout_s=5)
        wait_for("the reward server is ready", lambda: client.health() or process.poll() is not None)
        yield process
    finally:
        process.terminate()
        process.wait(10)
