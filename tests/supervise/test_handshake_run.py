"""The handshake in a whole run: before the trainer, and once more before a resumed one."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from talking import MODEL, ROOT, embedded, facts_of, odd_server, recipe, vllm_shaped

from orchestrator.exits import SERVICE_FAILED
from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.supervise.handshake import handshake
from orchestrator.supervise.leases import lease_ports
from tests.orchestrated import SMALL, orchestrate, read, run_dirs, wait_for

pytestmark = pytest.mark.e2e


def test_a_disagreement_ends_the_run_before_the_trainer_starts(tmp_path: Path, ports: list[int]) -> None:
    external = ("generation=external", f"generation.url=http://127.0.0.1:{ports[0]}")
    with embedded(ports[0], "--dtype", "bfloat16", "--max-model-len", "16"):
        done = orchestrate(*SMALL, *external, cwd=tmp_path)
    assert done.returncode == SERVICE_FAILED, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    assert "failed: handshake: 3 answers do not agree with the recipe\ngeneration: max_model_len: " in done.stderr
    assert "generation: dtype: the recipe means 'float32'" in done.stderr
    assert "fix: restart it with --dtype float32" in done.stderr
    assert str(run_dir / "handshake.json") in done.stderr
    assert not (run_dir / "logs" / "trainer.log").exists()
    written = read(run_dir / "handshake.json")
    assert written["agreed"] is False
    assert set(written["services"]) == {"reward", "generation"}
    assert all(fact["agrees"] for fact in written["facts"] if fact["name"].startswith("reward: "))
    assert read(run_dir / "result.json")["code"] == SERVICE_FAILED


def test_an_external_server_that_is_not_there(tmp_path: Path, ports: list[int]) -> None:
    external = ("generation=external", f"generation.url=http://127.0.0.1:{ports[0]}")
    done = orchestrate(*SMALL, *external, cwd=tmp_path)
    assert done.returncode == SERVICE_FAILED, done.stderr
    assert f"generation: server: nothing listens on http://127.0.0.1:{ports[0]} (connection refused)" in done.stderr
    assert "fix: start it first: with generation.kind=external somebody else runs the server" in done.stderr


def test_both_services_are_asked_side_by_side(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.supervise.handshake.reward.QUESTION_TIMEOUT_S", 2.0)
    monkeypatch.setattr("orchestrator.supervise.handshake.generation.QUESTION_TIMEOUT_S", 2.0)
    run = recipe(
        {"kind": "external", "url": f"http://127.0.0.1:{ports[0]}"},
        {"kind": "external", "url": f"http://127.0.0.1:{ports[1]}"},
    )
    with vllm_shaped(ports[0], "--hang", "/v1/completions"), odd_server("wedged-reward", ports[1]):
        verdict = handshake(run, tmp_path, facts_of(run))
    assert "it is wedged" in str(verdict.problem)
    assert "nothing within 2 s" in str(verdict.problem)
    assert read(tmp_path / "handshake.json")["seconds"] < 3.5


@contextmanager
def recording_server(port: int, record: Path, weights: Path) -> Iterator[None]:
    flags = ["--model", MODEL, "--port", str(port), "--dtype", "float32", "--weights-dir", str(weights)]
    argv = [sys.executable, "-m", "tests.training.recording_server", str(record), *flags]
    process = subprocess.Popen(argv, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    try:
        wait_for("the server is ready", lambda: _is_ready(port) or process.poll() is not None)
        yield
    finally:
        process.kill()
        process.wait(10)


def _is_ready(port: int) -> bool:
    try:
        return GenerationClient(f"http://127.0.0.1:{port}", timeout_s=5).health()
    except GenerationError:
        return False


def requests_of(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_a_resumed_run_sends_its_weights_before_it_samples(tmp_path: Path) -> None:
    """The server of a resumed run has the start weights, as after a restart: nothing may be sampled from them."""
    record = tmp_path / "requests.jsonl"
    with lease_ports(1)[0] as lease:
        external = ("generation=external", f"generation.url=http://127.0.0.1:{lease.port}")
        with recording_server(lease.port, record, tmp_path):
            done = orchestrate(*SMALL, *external, "trainer.args.save_steps=2", "evaluation.rows=0", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        fresh = requests_of(record)
        assert {line["weight_version"] for line in fresh if line["path"] == "/v1/models"} == {"default"}
        (run_dir,) = run_dirs(tmp_path)
        shutil.rmtree(run_dir / "checkpoints" / "checkpoint-3")  # as if the run had died in its last step
        (run_dir / "result.json").unlink()
        record.unlink()
        with recording_server(lease.port, record, tmp_path):
            done = orchestrate("resume", str(run_dir), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    lines = requests_of(record)
    first = next(index for index, line in enumerate(lines) if line["rollout"])
    before = [line["path"] for line in lines[:first]]
    assert before.index("/v1/models") < before.index("/start_weight_update"), "the handshake comes first"
    assert before.count("/finish_weight_update") >= 2, "the canary's weights, then those of the checkpoint"
    sampled_from = [line["weight_version"].split("-")[:2] for line in lines if line["rollout"]]
    assert sampled_from[0] == ["step", "2"]
    assert {version[0] for version in sampled_from} == {"step"}
    # A fresh run keeps the same order: its first completions come from weights that were sent, not from those on disk.
    first = next(index for index, line in enumerate(fresh) if line["rollout"])
    assert fresh[first]["weight_version"].startswith("step-0-")
