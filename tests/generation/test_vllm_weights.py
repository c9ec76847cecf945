"""Weights on their way into the real vLLM: tied and untied, of two architectures; refused files; cached prefixes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_llama
import torch
from generation_servers import start_vllm, stop
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from orchestrator.generation.client import GenerationClient, GenerationError, Sampling
from orchestrator.generation.transfer import SafetensorsSender, WeightSyncError
from orchestrator.training.sync import WeightSync, make_sync

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

ROOM = 256
LONG_PROMPT = [4 + 7 * place % 50 for place in range(200)]
"""Longer than a block of vLLM's prefix cache."""
ROUNDING = 1e-4  # nats, in float32


def qwen2() -> PreTrainedModel:
    """The tiny Llama's shape, with Qwen2's biases."""
    like = tiny_llama.model().config
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    more = ("num_key_value_heads", "tie_word_embeddings", "initializer_range", "eos_token_id", "pad_token_id")
    torch.manual_seed(1)
    return Qwen2ForCausalLM(Qwen2Config(**{name: getattr(like, name) for name in (*names, *more)})).eval()


MODELS = {
    "llama tied": lambda: tiny_llama.model(max_position_embeddings=ROOM),
    "llama untied": lambda: tiny_llama.model(max_position_embeddings=ROOM, tie_word_embeddings=False),
    "qwen2 tied": qwen2,
}


@dataclass(frozen=True)
class Served:
    """A model in this process, and vLLM started from a copy of it."""

    model: PreTrainedModel
    client: GenerationClient
    sender: SafetensorsSender
    sync: WeightSync

    def train(self, factor: float = 1.01) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(factor)


@pytest.fixture(params=MODELS, scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, model = tmp_path_factory.mktemp("served"), MODELS[request.param]()
    model.save_pretrained(folder / "model")
    tiny_llama.tokenizer().save_pretrained(folder / "model")
    target = start_vllm(folder / "model", folder / "run", name="tiny", max_model_len=ROOM)
    try:
        client = GenerationClient(target.base_url, model="tiny", timeout_s=60)
        sender = SafetensorsSender(client, target.weights_dir)
        sync = make_sync(
            lambda: model, client, sender, dtype="float32", tolerance=None, verify_every=1, max_length=ROOM, seed=0
        )
        yield Served(model, client, sender, sync)
    finally:
        stop(target)


def test_it_follows_every_tensor_and_every_step(served: Served) -> None:
    served.sync.canary(0)
    gaps = []
    for step in (1, 2, 3):
        served.train()
        served.sync.push(step)
        gaps.append(served.sync.gap or 0.0)
    assert max(gaps) < ROUNDING, gaps


def test_a_tied_head_follows_when_the_file_has_the_embedding_alone(served: Served) -> None:
    if not served.model.config.tie_word_embeddings:
        assert "lm_head.weight" in dict(served.model.named_parameters())
    served.train()
    served.sender.send(served.model.named_parameters(), "each-once")
    served.sync.verify()
    assert (served.sync.gap or 0.0) < ROUNDING


def test_no_prefix_of_the_old_weights_is_used(served: Served) -> None:
    def answer() -> tuple[tuple[int, ...], list[float]]:
        (completion,) = served.client.complete([LONG_PROMPT], 1, Sampling(max_tokens=8, temperature=0.0), 0)[0]
        return tuple(completion.token_ids), list(completion.logprobs)

    old = answer()
    served.train(1.3)
    served.sync.push(10)
    tokens, logprobs = answer()
    assert (tokens, logprobs) != old
    with torch.no_grad():
        table = served.model(torch.tensor([[*LONG_PROMPT, *tokens]])).logits[0].log_softmax(dim=-1)
    ours = [float(table[len(LONG_PROMPT) - 1 + place, token]) for place, token in enumerate(tokens)]
    assert max(abs(a - b) for a, b in zip(ours, logprobs, strict=True)) < ROUNDING


@pytest.mark.parametrize("fault", ["missing", "not finite", "another shape", "outside", "no file"])
def test_a_refused_file_changes_nothing(served: Served, fault: str, tmp_path: Path) -> None:
    before, version = served.client.score([LONG_PROMPT]), served.client.weight_info()["weight_version"]
    tensors = {name: tensor.detach().clone() * 2 for name, tensor in served.model.named_parameters()}
    name = "model.norm.weight"
    if fault in ("outside", "no file"):
        path = str(tmp_path / "other.safetensors") if fault == "outside" else "none.safetensors"
        says = "outside" if fault == "outside" else "there are no weights"
        with pytest.raises(GenerationError, match=says):
            served.client.update_weights({"path": path}, "bad")
    else:
        if fault == "missing":
            del tensors[name]
        elif fault == "not finite":
            tensors[name][0] = float("nan")
        else:
            tensors[name] = tensors[name][:-1]
        with pytest.raises(WeightSyncError, match=f"model unchanged: {name}"):
            served.sender.send(tensors.items(), f"bad-{fault.replace(' ', '-')}")
    assert served.client.score([LONG_PROMPT]) == before
    assert served.client.weight_info()["weight_version"] == version
    served.train()
    served.sync.send(20)  # and it goes on
    assert (served.sync.gap or 0.0) < ROUNDING
