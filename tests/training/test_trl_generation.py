"""TRL's own ways to generate: its config for each kind, its server mode under our proof, the trainer's own model."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trl import GRPOConfig

from orchestrator.assets import TINY_MATH
from orchestrator.compose import Composer
from orchestrator.jobs import check_job
from orchestrator.schema import LoraConfig, RunConfig
from orchestrator.supervise.leases import lease_ports
from orchestrator.training.grpo import trainer_config
from orchestrator.training.session import train
from orchestrator.training.sync import SyncProofError
from tests.orchestrated import orchestrate, processes_of, read, run_dirs
from tests.training.embedded_server import embedded_server
from tests.training.trl_server_mode import without_nccl

NCCL = ("generation=vllm", "generation.weight_sync.backend=nccl", "generation.weight_sync.port=20123")
SMALL = (
    "+experiment=grpo_math",
    "reward=inprocess",
    "reward.functions=[{name: accuracy, target: accuracy}]",
    "trainer.args.max_steps=2",
    "trainer.args.warmup_steps=0",
    "trainer.args.per_device_train_batch_size=16",
    "evaluation.rows=4",
    "evaluation.samples=2",
)


def recipe(*overrides: str) -> RunConfig:
    return check_job(Composer(), [*SMALL, *overrides]).run


def fields(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    return vars(trainer_config(GRPOConfig, recipe(*overrides), tmp_path))


def test_server_mode_goes_to_the_recipes_server_and_group_port(tmp_path: Path) -> None:
    config = fields(tmp_path, *NCCL, "generation.port=8123", "generation.ready_timeout_s=77")
    assert (config["use_vllm"], config["vllm_mode"]) == (True, "server")
    assert config["vllm_server_base_url"] == "http://127.0.0.1:8123"
    assert config["vllm_group_port"] == 20123
    assert config["vllm_server_timeout"] == 77
    assert config["vllm_importance_sampling_correction"] is True
    external = fields(
        tmp_path,
        "generation=external",
        "generation.url=http://gpu7:8000",
        "generation.weight_sync.backend=nccl",
        "generation.weight_sync.port=20124",
    )
    assert (external["vllm_mode"], external["vllm_server_base_url"]) == ("server", "http://gpu7:8000")
    assert external["vllm_group_port"] == 20124


def test_colocate_gives_trl_the_engines_settings(tmp_path: Path) -> None:
    config = fields(
        tmp_path,
        "generation=colocate",
        "generation.args.gpu_memory_utilization=0.4",
        "generation.args.enable_sleep_mode=true",
    )
    assert (config["use_vllm"], config["vllm_mode"]) == (True, "colocate")
    assert config["vllm_tensor_parallel_size"] == 1
    assert config["vllm_gpu_memory_utilization"] == 0.4
    assert config["vllm_max_model_length"] == 24
    assert config["vllm_enable_sleep_mode"] is True
    assert fields(tmp_path, "generation=colocate")["vllm_gpu_memory_utilization"] == 0.3


@pytest.mark.parametrize("kind", ["inprocess", "embedded", "vllm"])
def test_the_other_kinds_leave_vllm_off(tmp_path: Path, kind: str) -> None:
    """With weights in files, our rollouts ask vLLM's server: TRL's own client stays out of it."""
    assert fields(tmp_path, f"generation={kind}")["use_vllm"] is False


def test_what_the_recipe_says_of_trls_fields_wins_over_what_is_derived(tmp_path: Path) -> None:
    config = fields(tmp_path, *NCCL, "trainer.args.vllm_importance_sampling_correction=false")
    assert config["vllm_importance_sampling_correction"] is False


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[RunConfig, Path]]:
    """A recipe with NCCL, and the embedded server where it looks for vLLM."""
    run_dir = tmp_path / "run"
    (run_dir / "weights").mkdir(parents=True)
    with lease_ports(1)[0] as lease:
        run = recipe(*NCCL, f"generation.port={lease.port}", "generation.weight_sync.verify_every=1")
        with embedded_server(lease.port, run_dir / "weights", TINY_MATH):
            yield run, run_dir


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_trls_own_rollouts_train_and_every_sync_is_proven(
    served: tuple[RunConfig, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, run_dir = served
    client = without_nccl(monkeypatch, run_dir / "weights")
    train(run, run_dir, None)
    steps = [line for line in lines(run_dir / "metrics.jsonl") if "reward" in line]
    assert [line["step"] for line in steps] == [1, 2]
    # The canary's two, one of TRL's for each step that generates, the last weights.
    assert [line["sync/count"] for line in steps] == [3, 4]
    assert len(client.announced) == 2 + 2 + 1
    assert all(line["sync/logprob_gap"] < 1e-5 for line in steps)
    # TRL compares the server's log-probs of what it sampled with its own: the same policy, so no correction.
    assert all(line["sampling/importance_sampling_ratio/min"] == pytest.approx(1, abs=1e-3) for line in steps)
    report = json.loads((run_dir / "trainer.json").read_text())
    assert report["expected"] == {"samples_scored": 2 * 16 + 2 * 4 * 3}
    assert report["logprob_gap"] < 1e-5
    assert {line["status"] for line in lines(run_dir / "samples.jsonl")} <= {"completed", "truncated"}


def test_adapters_are_merged_by_trl_and_proven_too(
    served: tuple[RunConfig, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, run_dir = served
    adapters = LoraConfig(r=4, lora_alpha=8.0, target_modules="all-linear")
    client = without_nccl(monkeypatch, run_dir / "weights")
    train(replace(run, trainer=replace(run.trainer, lora=adapters)), run_dir, None)
    steps = [line for line in lines(run_dir / "metrics.jsonl") if "reward" in line]
    assert all(line["sync/logprob_gap"] < 1e-4 for line in steps)
    assert not any("lora" in name for names in client.announced for name in names)


@pytest.mark.parametrize(
    ("takes", "says"), [(0, "the canary .* ignores weight updates"), (3, "does not hold the weights of step 1")]
)
def test_a_server_that_keeps_its_weights_is_stopped(
    served: tuple[RunConfig, Path], monkeypatch: pytest.MonkeyPatch, takes: int, says: str
) -> None:
    run, run_dir = served
    without_nccl(monkeypatch, run_dir / "weights", takes=takes)
    with pytest.raises(SyncProofError, match=says):
        train(run, run_dir, None)
    trained = run_dir / "metrics.jsonl"
    assert len(lines(trained) if trained.exists() else []) == (0 if takes == 0 else 1)


def test_the_trainers_own_model_generates(tmp_path: Path) -> None:
    run = recipe("generation=inprocess", "limits.completion_length=2")
    train(run, tmp_path, None)
    steps = [line for line in lines(tmp_path / "metrics.jsonl") if "reward" in line]
    assert [line["step"] for line in steps] == [1, 2]
    assert "sync/count" not in steps[0]
    report = json.loads((tmp_path / "trainer.json").read_text())
    assert report["logprob_gap"] is None
    assert report["expected"] == {"samples_scored": 2 * 16 + 2 * 4 * 3}
    assert 0 < report["heldout_after"]["greedy"]["accuracy"] <= 1
    # Two tokens hold a digit and the end, not two digits and the end.
    statuses = {len(line["completion"][0]["content"]): line["status"] for line in lines(tmp_path / "samples.jsonl")}
    assert statuses.get(2) == "truncated"
    assert statuses.get(1, "completed") == "completed"


@pytest.mark.e2e
def test_a_run_without_a_generation_server(tmp_path: Path) -> None:
    done = orchestrate(*SMALL, "generation=inprocess", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    assert [step["name"] for step in read(run_dir / "plan.json")["steps"]] == ["trainer", "counts"]
    result = read(run_dir / "result.json")
    assert (result["final_step"], result["logprob_gap"]) == (2, None)
    assert result["heldout_after"] is not None
    assert processes_of(run_dir) == []
