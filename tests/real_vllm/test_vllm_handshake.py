"""The handshake's questions to the real vLLM, and whether what stands in for it elsewhere answers in its shapes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from orchestrator.schema import ModelConfig, WeightSyncConfig
from orchestrator.supervise.leases import lease_ports
from tests.generation.generation_servers import Target
from tests.supervise.talking import MODEL, differing, recipe, record_child, shake, skipped, vllm_shaped

pytestmark = pytest.mark.vllm

COMPARED = {
    "generation: served model", "generation: model files", "generation: max_model_len", "generation: dtype",
    "generation: logprobs mode", "generation: weight transfer", "generation: weight routes", "generation: world size",
    "generation: vocabulary", "generation: tokenizer (a probe text)", "generation: chat template (a probe message)",
    "generation: scores a sequence",
}  # fmt: skip


def external(target: Target, **more: Any) -> dict[str, Any]:
    return {"kind": "external", "url": target.base_url, "port": int(target.base_url.rpartition(":")[2]), **more}


def test_a_server_of_somebody_else_agrees_in_every_fact(vllm: Target, tmp_path: Path) -> None:
    verdict, written = shake(recipe(external(vllm)), tmp_path)
    assert (verdict.problem, verdict.warning) == (None, None)
    names = {fact["name"] for fact in written["facts"]}
    assert names == COMPARED | {"generation: who listens (before and after the questions)"}
    # What it is was not asked for; it is written down.
    said = {one["name"]: one["said"] for one in written["skipped"]}
    assert said == {"generation: engine": "vllm", "generation: engine version": "0.32.0"}


def test_a_server_of_the_run_agrees(vllm: Target, tmp_path: Path) -> None:
    port = int(vllm.base_url.rpartition(":")[2])
    record_child(tmp_path, "generation", vllm.process.pid, port)
    run = recipe({"kind": "vllm", "url": vllm.base_url, "port": port, "max_model_len": 64})
    verdict, written = shake(run, tmp_path)
    assert verdict.problem is None
    assert written["services"]["generation"]["pid"] == vllm.process.pid
    assert {fact["name"] for fact in written["facts"]} == COMPARED | {
        "generation: engine",
        f"generation: who listens on port {port} (before the questions)",
        f"generation: who listens on port {port} (after the questions)",
    }


def test_everything_that_differs_is_said(vllm: Target, tmp_path: Path) -> None:
    meant = external(
        vllm,
        model="other/model",
        dtype="bfloat16",
        tensor_parallel_size=2,
        weight_sync=WeightSyncConfig(backend="nccl"),
    )
    verdict, written = shake(recipe(meant), tmp_path)
    assert differing(written) == [
        "generation: served model", "generation: engine version", "generation: dtype", "generation: weight transfer",
        "generation: world size",
    ]  # fmt: skip
    assert "generation: vllm of the trainer" in skipped(written)
    for words in ("says 'float32'", "generation.weight_sync.backend=safetensors", "the recipe means 2"):
        assert words in str(verdict.problem)


def test_a_longer_context_and_more_tokens(vllm: Target, tmp_path: Path) -> None:
    run = recipe(external(vllm, max_model_len=65))
    run.model = ModelConfig(name=MODEL, add_tokens=[f"<extra{n}>" for n in range(200)])
    assert differing(shake(run, tmp_path)[1]) == ["generation: max_model_len", "generation: vocabulary"]


def test_a_server_without_our_plugin_is_refused(plain: Target, tmp_path: Path) -> None:
    verdict, written = shake(recipe(external(plain)), tmp_path)
    assert differing(written) == ["generation: logprobs mode", "generation: weight transfer"]
    assert "It was started without a weight-transfer engine: it would never take the trained weights" in str(
        verdict.problem
    )
    assert """--weight-transfer-config '{"backend": "safetensors"}'""" in str(verdict.problem)


READ = (
    "/v1/models", "/version", "/server_info?config_format=json", "/get_world_size", "/weight_info", "/is_paused",
    "/update_weights", "/finish_weight_update", "/nowhere",
)  # fmt: skip
POSTED: dict[str, dict[str, Any]] = {
    "/tokenize": {"prompt": "1+1=", "add_special_tokens": False},
    "/v1/completions": {"prompt": [[0, 1]], "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 1},
    "/v1/completions?unknown model": {"model": "another", "prompt": [0], "max_tokens": 1},
    "/v1/completions?unknown token": {"prompt": [0], "max_tokens": 1, "logit_bias": {str(2**31 - 1): 0.0}},
    "/tokenize?chat": {"messages": [{"role": "user", "content": "1+1="}], "add_generation_prompt": True},
}


def test_what_stands_in_for_it_answers_in_its_shapes(vllm: Target) -> None:
    """tests/supervise/programs/vllm_shaped.py: no key, no type and no status that vLLM has not."""
    with lease_ports(1)[0] as lease, vllm_shaped(lease.port, "--max-model-len", "64"):
        shaped = f"http://127.0.0.1:{lease.port}"
        for path in READ:
            real, ours = (requests.get(url + path, timeout=30) for url in (vllm.base_url, shaped))
            assert (ours.status_code, list(strangers(ours.json(), real.json()))) == (real.status_code, []), path
        for path, body in POSTED.items():
            real, ours = (requests.post(url + path, json=body, timeout=30) for url in (vllm.base_url, shaped))
            assert (ours.status_code, list(strangers(ours.json(), real.json()))) == (real.status_code, []), path


def strangers(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """What `ours` has and `theirs` has not, or of another type."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                yield f"{where}.{key} is not there"
            else:
                yield from strangers(value, theirs[key], f"{where}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and ours and theirs:
        yield from strangers(ours[0], theirs[0], f"{where}[0]")
    elif type(ours) is not type(theirs):
        yield f"{where} is {ours!r}, vLLM's is {theirs!r}"
