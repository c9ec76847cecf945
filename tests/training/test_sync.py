"""The weight-sync proof against real servers with planted faults: each answers 200 to every update."""

import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from orchestrator.assets import TINY_MATH
from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.generation.transfer import SafetensorsSender
from orchestrator.supervise.leases import lease_ports
from orchestrator.training.probe import largest_gap, mean_gap, perturbed, sequence_logprobs
from orchestrator.training.sync import SyncProofError, WeightSync, make_sync
from tests.orchestrated import orchestrate, run_dirs, wait_for

MODEL = TINY_MATH
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def faulty_server(fault: str, weights_dir: Path) -> Iterator[str]:
    """Address of a server with the fault, which reads weights from below `weights_dir`."""
    with lease_ports(1)[0] as lease:
        flags = [
            "--model",
            str(MODEL),
            "--port",
            str(lease.port),
            "--max-model-len",
            "24",
            "--weights-dir",
            str(weights_dir),
        ]
        argv = [sys.executable, "-m", "tests.training.faulty_server", fault, *flags, "--dtype", "float32"]
        process = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE)
        url = f"http://127.0.0.1:{lease.port}"
        try:
            wait_for("the server is ready", lambda: _is_ready(url) or process.poll() is not None)
            yield url
        finally:
            process.kill()
            process.communicate()


def _is_ready(url: str) -> bool:
    try:
        return GenerationClient(url, timeout_s=5).health()
    except GenerationError:
        return False


@pytest.fixture
def model() -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)


def sync_with(url: str, folder: Path, model: PreTrainedModel, verify_every: int = 1) -> WeightSync:
    client = GenerationClient(url, model=str(MODEL), timeout_s=30)
    sender = SafetensorsSender(client, folder)
    return make_sync(
        lambda: model, client, sender, dtype="float32", tolerance=None, verify_every=verify_every, max_length=24, seed=0
    )


def train_a_little(model: PreTrainedModel) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)


def test_a_good_server_follows_and_the_gap_is_rounding(tmp_path: Path, model: PreTrainedModel) -> None:
    with faulty_server("none", tmp_path) as url:
        sync = sync_with(url, tmp_path, model)
        sync.canary(0)
        for step in range(1, 4):
            train_a_little(model)
            sync.push(step)
        sync.push(3)
        assert sync.num_syncs == 2 + 3
        assert sync.gap is not None
        assert sync.gap < 1e-5
        assert GenerationClient(url, timeout_s=5).weight_info()["weight_version"] == f"step-3-5-{sync.tag}"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("ignore", "ignores weight updates"),
        ("miss-one", "misses a tensor"),
        ("stale-lm-head", "lm_head.weight"),
        ("other-model", "another model of the same shapes"),
    ],
)
def test_a_fault_is_stopped_at_the_canary(tmp_path: Path, model: PreTrainedModel, fault: str, says: str) -> None:
    with faulty_server(fault, tmp_path) as url, pytest.raises(SyncProofError, match=says) as caught:
        sync_with(url, tmp_path, model).canary(0)
    assert "canary" in str(caught.value)
    assert "tolerance 0.001" in str(caught.value)


def test_a_server_that_stops_updating_is_stopped_at_the_next_proof(tmp_path: Path, model: PreTrainedModel) -> None:
    with faulty_server("stop-after-step-five", tmp_path) as url:
        sync = sync_with(url, tmp_path, model, verify_every=5)
        sync.canary(0)
        for step in range(1, 8):  # the updates of steps 6 and 7 change nothing, and are not compared
            train_a_little(model)
            sync.push(step)
        train_a_little(model)
        with pytest.raises(SyncProofError, match=r"the weights of step 8.*stopped updating"):
            sync.push(8)


def test_a_model_that_training_has_broken_proves_nothing(tmp_path: Path, model: PreTrainedModel) -> None:
    """Finite weights whose log-probs are NaN on both sides: no comparison of NaN may pass for equal."""
    with faulty_server("none", tmp_path) as url:
        sync = sync_with(url, tmp_path, model)
        sync.canary(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1e12)
        with pytest.raises(SyncProofError, match=r"the weights of step 1.*NaN or infinite.*learning_rate"):
            sync.push(1)
    assert math.isnan(largest_gap([[0.0, 1.0]], [[0.0, math.nan]]))


def test_the_canary_sees_each_tensor(model: PreTrainedModel) -> None:
    """Any single tensor that keeps its old value leaves a gap far above the tolerance."""
    probes = [[5, 9, 60, 33, 70, 12, 41, 8, 90, 17, 22, 63, 3, 50, 77, 28], [7] * 8 + [31] * 8]
    true = {name: p.detach().clone() for name, p in model.named_parameters()}
    with perturbed(model, 0, 0.1):
        expected = sequence_logprobs(model, probes)
        for name, parameter in model.named_parameters():
            moved = parameter.detach().clone()
            with torch.no_grad():
                parameter.copy_(true[name])
                assert largest_gap(expected, sequence_logprobs(model, probes)) > 5e-3, name
                parameter.copy_(moved)
    assert all(torch.equal(p, true[name]) for name, p in model.named_parameters())


@pytest.mark.e2e
def test_a_run_with_a_faulty_external_server_ends_before_step_one(tmp_path: Path) -> None:
    with faulty_server("ignore", tmp_path) as url:
        done = orchestrate(
            "+experiment=grpo_math",
            "trainer.args.max_steps=3",
            "generation=external",
            f"generation.url={url}",
            cwd=tmp_path,
        )
        assert done.returncode == 1
        assert "ignores weight updates" in done.stderr
        assert not (run_dirs(tmp_path)[0] / "metrics.jsonl").exists()
        assert _is_ready(url)  # somebody else's server is left alone


def test_half_precision_is_judged_by_the_mean(tmp_path: Path, model: PreTrainedModel) -> None:
    """One token that rounds badly is no fault; a server that is off everywhere is."""
    ours, one_off, all_off = [[0.0] * 40], [[4.0] + [0.1] * 39], [[1.0] * 40]
    assert mean_gap(ours, one_off) == pytest.approx(0.1975)
    assert math.isnan(mean_gap(ours, [[math.nan] * 40]))

    class Engine:
        said = one_off

        def score(self, sequences: list[list[int]]) -> list[list[float]]:
            return self.said

    engine = Engine()
    client = GenerationClient("http://127.0.0.1:1", timeout_s=1)
    sync = make_sync(
        lambda: model,
        engine,
        SafetensorsSender(client, tmp_path),
        dtype="bfloat16",
        tolerance=None,
        verify_every=1,
        max_length=24,
        seed=0,
    )
    sync._compare(ours, None, "the weights")
    engine.said = all_off
    with pytest.raises(SyncProofError, match=r"a mean of 1 nats, tolerance 0\.4"):
        sync._compare(ours, None, "the weights")
