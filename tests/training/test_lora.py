"""Adapters: what the recipe says of them, merged weights under the base model's names, the canary, checkpoints."""

import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from peft import PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from orchestrator.assets import TINY_MATH
from orchestrator.generation.client import GenerationClient
from orchestrator.generation.transfer import WeightSyncError, named_weights
from orchestrator.schema import LoraConfig
from orchestrator.training.lora import AdapterSender, load_adapter, lora_config
from orchestrator.training.probe import (
    every_parameter,
    is_adapter,
    largest_gap,
    perturbed,
    probe_sequences,
    sequence_logprobs,
)
from orchestrator.training.sync import NOISE, TOLERANCES, VISIBLE, SyncProofError, WeightSync, make_sync
from tests.orchestrated import SMALL, orchestrate, read, run_dirs
from tests.training.adapter_server import adapter_server

PROBES = probe_sequences(vocab_size=96, max_length=16, seed=0)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"target_modules": "all-linear"},
    "rank-stabilised": {"target_modules": ["q_proj", "down_proj"], "use_rslora": True, "lora_alpha": 32},
    "weight-decomposed": {"target_modules": ["q_proj", "up_proj"], "use_dora": True},
    "dropout": {"target_modules": "all-linear", "lora_dropout": 0.5},
    "whole modules and biases": {"target_modules": ["v_proj"], "modules_to_save": ["norm"], "bias": "all"},
    "counts little": {"target_modules": ["v_proj"], "lora_alpha": 1, "r": 64},
}


def base_model(dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(TINY_MATH, dtype=dtype)


def adapted(kind: str = "plain", dtype: torch.dtype = torch.float32) -> PeftModel:
    config = lora_config(LoraConfig(**({"r": 8} | KINDS[kind])))
    assert config is not None
    torch.manual_seed(0)
    return get_peft_model(base_model(dtype), config)


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters(remove_duplicate=False)}


def test_without_a_rank_there_is_no_adapter() -> None:
    assert lora_config(LoraConfig()) is None


def test_what_the_recipe_leaves_out_is_pefts_choice() -> None:
    config = lora_config(LoraConfig(r=4))
    plain = peft.LoraConfig(r=4, task_type="CAUSAL_LM")
    assert config is not None
    assert config.to_dict() == plain.to_dict()


def test_every_setting_is_one_of_pefts() -> None:
    said = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj"], lora_dropout=0.1, modules_to_save=["norm"])
    config = lora_config(said)
    assert config is not None
    assert (config.lora_alpha, config.target_modules, config.lora_dropout) == (16, {"q_proj"}, 0.1)
    assert config.modules_to_save == ["norm"]


@pytest.mark.parametrize("kind", KINDS)
def test_merged_weights_are_the_base_models_and_say_what_the_adapted_says(kind: str) -> None:
    model, plain = adapted(kind), base_model()
    before = state_of(model)
    with perturbed(model, 0, 0.1):  # B is zero at the start: without this, forgetting the adapter would pass
        expected = sequence_logprobs(model, PROBES)
        moved = state_of(model)
        sent = {name: tensor.clone() for name, tensor in named_weights(model)}
        assert all(torch.equal(moved[name], tensor) for name, tensor in state_of(model).items())
    assert list(sent) == [name for name, _ in named_weights(plain)]
    plain.load_state_dict(sent)
    assert largest_gap(expected, sequence_logprobs(plain, PROBES)) < 1e-4
    after = state_of(model)
    assert after.keys() == before.keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sending_changes_no_trained_weight(dtype: torch.dtype) -> None:
    model = adapted(dtype=dtype)
    with perturbed(model, 0, 0.1):
        before, own = state_of(model), dict(model.named_parameters())
        for _ in range(2):
            for _ in named_weights(model):
                pass
        assert all(torch.equal(before[name], tensor) for name, tensor in state_of(model).items())
        assert all(own[name] is parameter for name, parameter in model.named_parameters())
        assert not any(getattr(layer, "merged", False) for layer in model.modules())


def test_one_tensor_is_in_memory_at_a_time() -> None:
    """The merged copies are gone again: nothing but the model's own parameters is kept."""
    model = adapted()
    own = {p.data_ptr() for p in model.parameters()}
    copies = [tensor.data_ptr() for _, tensor in named_weights(model) if tensor.data_ptr() not in own]
    assert len(set(copies)) < len(copies)  # memory that was used before is used again


@pytest.mark.parametrize("kind", KINDS)
def test_the_canary_sees_the_adapters_by_themselves(kind: str) -> None:
    model = adapted(kind)
    base = sequence_logprobs(model, PROBES)
    with perturbed(model, 0, NOISE[0], is_adapter):
        assert largest_gap(base, sequence_logprobs(model, PROBES)) >= VISIBLE * TOLERANCES["float32"]
    assert sequence_logprobs(model, PROBES) == base


def test_the_canary_moves_every_tensor_that_is_sent() -> None:
    model = adapted()
    true = {name: tensor.clone() for name, tensor in named_weights(model)}
    with perturbed(model, 0, NOISE[0], every_parameter):
        assert [name for name, tensor in named_weights(model) if torch.equal(true[name], tensor)] == []


def test_a_checkpoint_of_an_adapter_is_there_before_training(tmp_path: Path) -> None:
    trained = adapted()
    with torch.no_grad():
        for parameter in filter(is_adapter, trained.parameters()):
            parameter.add_(0.01)
    trained.save_pretrained(str(tmp_path))
    resumed = adapted()
    load_adapter(resumed, str(tmp_path))
    assert sequence_logprobs(resumed, PROBES) == sequence_logprobs(trained, PROBES)
    assert [n for n, p in resumed.named_parameters() if p.requires_grad] == [
        n for n, p in trained.named_parameters() if p.requires_grad
    ]


def adapter_sync(url: str, folder: Path, model: PeftModel) -> tuple[WeightSync, GenerationClient]:
    client = GenerationClient(url, model="base", timeout_s=30)
    sender = AdapterSender(lambda: model, client, folder)
    sync = make_sync(
        lambda: model,
        sender,
        sender,
        dtype="float32",
        tolerance=None,
        verify_every=1,
        max_length=24,
        seed=0,
        moves=is_adapter,
    )
    return sync, client


def test_adapters_sent_alone_are_proven_and_one_is_kept(tmp_path: Path) -> None:
    model = adapted()
    with adapter_server() as (url, served):
        sync, client = adapter_sync(url, tmp_path, model)
        sync.canary(0)
        with torch.no_grad():
            for parameter in filter(is_adapter, model.parameters()):
                parameter.add_(0.01)
        sync.push(1)
        assert sync.gap is not None
        assert sync.gap < 1e-4
        # Each version is a name of its own: the server's prefix cache tells adapters apart by nothing else.
        assert list(served.models) == ["base", f"step-1-3-{sync.tag}"]
        assert client.model == f"step-1-3-{sync.tag}"
        assert [str(path) for path in tmp_path.iterdir()] == [served.roots[client.model]]


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("ignore", SyncProofError, "ignores weight updates"),
        ("unlisted", WeightSyncError, "does not list it"),
        ("refuse", WeightSyncError, "was not taken.*cannot be loaded"),
    ],
)
def test_an_adapter_that_did_not_arrive_is_said(tmp_path: Path, fault: str, kind: type[Exception], says: str) -> None:
    with adapter_server(fault) as (url, _), pytest.raises(kind, match=says):
        adapter_sync(url, tmp_path, adapted())[0].canary(0)


@pytest.mark.e2e
def test_a_run_with_adapters_learns_is_proven_and_resumes(tmp_path: Path) -> None:
    recipe = (*SMALL, "trainer.lora.r=8", "trainer.lora.target_modules=all-linear", "trainer.args.save_steps=2")
    done = orchestrate(*recipe, "generation.weight_sync.verify_every=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    assert read(run_dir / "trainer.json")["logprob_gap"] < 1e-4
    saved = read(run_dir / "model" / "adapter_config.json")
    assert (saved["r"], saved["base_model_name_or_path"]) == (8, str(TINY_MATH))
    assert not (run_dir / "weights").exists()
    # As if it had died after its checkpoint.
    (run_dir / "result.json").unlink()
    shutil.rmtree(run_dir / "checkpoints" / "checkpoint-3", ignore_errors=True)
    resumed = orchestrate("resume", str(run_dir), cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    trained = read(run_dir / "trainer.json")
    assert (trained["start_step"], trained["final_step"]) == (2, 3)
    assert trained["logprob_gap"] < 1e-4
