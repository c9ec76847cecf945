"""How a run starts vLLM: its command line by version, and what stands in its environment."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from talking import recipe

import launchers.vllm
from launchers.context import Context
from orchestrator.assets import VLLM_PLUGIN
from orchestrator.schema import WeightSyncConfig
from orchestrator.steps import Step


def made(version: str | None = "0.32.0", devices: Mapping[str, str] | None = None, **generation: Any) -> Step:
    settings = {"kind": "vllm", "python": "/v/bin/python", "port": 8123, "url": "http://127.0.0.1:8123", **generation}
    run = recipe(generation=settings)
    return launchers.vllm.step(run, Context(run_dir=Path("/run"), vllm_version=version, devices=devices or {}))


def flag(step: Step, name: str) -> str:
    return step.argv[step.argv.index(f"--{name}") + 1]


def test_what_the_trainer_needs_of_it() -> None:
    step = made(max_model_len=300, tensor_parallel_size=2, data_parallel_size=3, dtype="bfloat16", revision="abc")
    assert step.argv[:3] == ("/v/bin/python", "-m", "vllm.entrypoints.openai.api_server")
    assert json.loads(flag(step, "weight-transfer-config")) == {"backend": "safetensors"}
    assert (flag(step, "logprobs-mode"), flag(step, "max-logprobs")) == ("processed_logprobs", "-1")
    assert (flag(step, "max-model-len"), flag(step, "dtype"), flag(step, "revision")) == ("300", "bfloat16", "abc")
    assert (flag(step, "tensor-parallel-size"), flag(step, "data-parallel-size")) == ("2", "3")
    assert step.env["VLLM_SERVER_DEV_MODE"] == "1"
    assert step.env["ORCHESTRATE_WEIGHTS_DIR"] == "/run/weights"
    assert (step.port, step.ready and step.ready.url) == (8123, "http://127.0.0.1:8123/health")


def test_nccl_is_named_where_the_recipe_wants_it() -> None:
    assert json.loads(flag(made(weight_sync=WeightSyncConfig(backend="nccl")), "weight-transfer-config")) == {
        "backend": "nccl"
    }


@pytest.mark.parametrize(("version", "there"), [("0.22.1", False), ("0.29.9", False), ("0.30.0", True), (None, True)])
def test_scale_out_is_a_flag_of_new_versions(version: str | None, there: bool) -> None:
    assert ("--enable-scale-out" in made(version).argv) is there


def test_arguments_of_the_engine_in_the_form_of_its_command_line() -> None:
    args = {
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "hf_overrides": {"rope_theta": 1},
        "lora_modules": ["a=b", "c=d"],
        "max_num_seqs": 8,
        "quantization": None,
    }
    words = made(args=args).argv
    assert {"--enforce-eager", "--no-enable-prefix-caching"} < set(words)
    assert json.loads(words[words.index("--hf-overrides") + 1]) == {"rope_theta": 1}
    assert words[words.index("--lora-modules") + 1 :][:2] == ("a=b", "c=d")
    assert words[words.index("--max-num-seqs") + 1] == "8"
    assert "--quantization" not in words


def test_the_users_environment_wins_but_keeps_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/exported")
    assert made().env["PYTHONPATH"] == f"{VLLM_PLUGIN}:/exported"
    env = made(env={"PYTHONPATH": "/mine", "VLLM_NO_USAGE_STATS": "0"}).env
    assert env["PYTHONPATH"] == f"{VLLM_PLUGIN}:/mine"
    assert env["VLLM_NO_USAGE_STATS"] == "0"


def test_it_sees_its_own_gpus() -> None:
    assert made(devices={"generation": "2,3"}).env["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "CUDA_VISIBLE_DEVICES" not in made().env


def test_it_has_longer_to_start_than_the_other_services() -> None:
    assert made(ready_timeout_s=600.0).ready_timeout_s == 600.0
    assert made().ready_timeout_s == 120.0
