"""The reward_model built-in, with tiny random classifiers that are built here."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
)

from rewards.batch import Batch
from rewards.calling.adapters import bind
from rewards.classifiers.classifier import Options, micro_batches
from rewards.classifiers.loading import load_classifier
from rewards.contract import FunctionSpec, PrepareError
from rewards.functions.reward_model import prepare, reward_model
from rewards.running.execute import run_unit

ROOT = Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "orchestrator" / "assets" / "tiny_math"
POSITIONS = 96
SAME = 1e-5
END = "<|end|>"

PROMPTS = ["1+1=", "12+30=", "5*5=", "7-9=", "100-1=", "3+4="]
COMPLETIONS = ["2", "42" + END, "25 25 25 25 25", "-2", "99" * 12 + END, "7"]

Build = Callable[..., str]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Save a classifier of random weights with the shipped tiny model's tokenizer; returns its folder."""

    def save(kind: str = "decoder", *, pad: int | None = 0, labels: int = 1, break_weight: bool = False) -> str:
        folder = tmp_path_factory.mktemp(kind)
        tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
        shared = {"vocab_size": len(tokenizer), "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32}
        shared |= {"intermediate_size": 64, "max_position_embeddings": POSITIONS, "pad_token_id": pad}
        torch.manual_seed(0)
        if kind == "encoder":
            model: Any = BertForSequenceClassification(BertConfig(**shared, num_labels=labels))
        elif kind == "language_model":
            model = Qwen2ForCausalLM(Qwen2Config(**shared, num_key_value_heads=2))
        else:
            config = Qwen2Config(**shared, num_key_value_heads=2, num_labels=labels, initializer_range=0.3)
            model = Qwen2ForSequenceClassification(config)
        if break_weight:
            with torch.no_grad():
                model.score.weight.fill_(math.nan)
        if pad is None:
            tokenizer.pad_token = None
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return save


@pytest.fixture(scope="session")
def decoder(build: Build) -> str:
    return build()


def alone(model: str, prompts: list[Any], completions: list[Any], **params: Any) -> list[float | None]:
    return [reward_model([p], [c], model=model, **params)[0] for p, c in zip(prompts, completions, strict=True)]


@pytest.mark.parametrize("params", [{}, {"batch_size": 2}, {"max_tokens": 40}, {"template": "chat"}])
@pytest.mark.parametrize(("kind", "pad"), [("decoder", 0), ("decoder", None), ("encoder", 0)])
def test_a_score_does_not_depend_on_the_rest_of_the_batch(
    build: Build, kind: str, pad: int | None, params: dict[str, Any]
) -> None:
    model = build(kind, pad=pad)
    together = reward_model(PROMPTS, COMPLETIONS, model=model, **params)
    assert together == pytest.approx(alone(model, PROMPTS, COMPLETIONS, **params), abs=SAME)
    assert len(set(together)) == len(PROMPTS)
    turned = reward_model(PROMPTS[::-1], COMPLETIONS[::-1], model=model, **params)
    assert turned[::-1] == pytest.approx(together, abs=SAME)


@pytest.mark.parametrize("pad", [0, None])
def test_scores_are_those_of_the_bare_model(build: Build, pad: int | None) -> None:
    """One sequence, nothing padded: what transformers itself says, also at an end token that could pass for padding."""
    folder = build(pad=pad)
    model = Qwen2ForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        pairs = zip(PROMPTS, COMPLETIONS, strict=True)
        expected = [model(**tokenizer(p + c, return_tensors="pt")).logits.item() for p, c in pairs]
    assert reward_model(PROMPTS, COMPLETIONS, model=folder) == pytest.approx(expected, abs=SAME)


def test_messages_go_through_the_chat_template(decoder: str) -> None:
    prompt = [{"role": "user", "content": "1+1="}]
    said = [{"role": "assistant", "content": "2"}]
    as_text = reward_model([""], [f"<|user|>1+1=<|assistant|>2{END}"], model=decoder)
    assert reward_model([prompt], [said], model=decoder) == pytest.approx(as_text, abs=SAME)
    assert reward_model(["1+1="], ["2"], model=decoder, template="chat") == pytest.approx(as_text, abs=SAME)
    assert reward_model(["1+1="], ["2"], model=decoder) != pytest.approx(as_text, abs=SAME)
    with pytest.raises(ValueError, match=r"sample 1: the chat template .* not system"):
        reward_model([prompt, [{"role": "system", "content": "x"}]], [said, said], model=decoder)


def test_a_pair_is_given_as_two_segments(build: Build) -> None:
    encoder = build("encoder")
    paired = reward_model(PROMPTS, COMPLETIONS, model=encoder, template="pair")
    assert paired == pytest.approx(alone(encoder, PROMPTS, COMPLETIONS, template="pair"), abs=SAME)


def test_a_sequence_that_is_too_long_is_never_cut_unasked(decoder: str) -> None:
    long = "1" * 200
    with pytest.raises(ValueError, match=r"sample 1 has 200 tokens .* at most 96 fit"):
        reward_model(["", ""], ["1", long], model=decoder)
    with pytest.raises(ValueError, match=r"sample 0 has 9 tokens .* at most 8 fit"):
        reward_model([""], ["123456789"], model=decoder, max_length=8)
    cut = reward_model([""], ["1234567890"], model=decoder, max_length=8, too_long="truncate_left")
    assert cut == pytest.approx(reward_model([""], ["34567890"], model=decoder), abs=SAME)
    with pytest.raises(ValueError, match="sample 0 has 0 tokens"):
        reward_model([""], [""], model=decoder)


def test_one_of_several_outputs(build: Build) -> None:
    model = build(labels=3)
    scores = [reward_model(["1+1="], ["2"], model=model, label_index=i)[0] for i in range(3)]
    assert len(set(scores)) == 3
    with pytest.raises(PrepareError, match=r"has 3 outputs .*label_index"):
        prepare(model=model)
    with pytest.raises(PrepareError, match="label_index is 3"):
        prepare(model=model, label_index=3)


def test_prepare_refuses_what_cannot_score(build: Build, decoder: str, tmp_path: Path) -> None:
    prepare(model=decoder)
    bare = tmp_path / "bare"
    shutil.copytree(decoder, bare)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bare / name).unlink()
    pickled = tmp_path / "pickled"
    shutil.copytree(decoder, pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    refused: dict[str, dict[str, Any]] = {
        "there is no folder": {"model": str(tmp_path / "nothing")},
        "model must be a folder or a hub id": {},
        "checkpoint lacks score.weight": {"model": build("language_model"), "label_index": 0},
        "scores nan": {"model": build(break_weight=True)},
        "max_length is 97, but .* takes 96": {"model": decoder, "max_length": 97},
        "dtype must be one of": {"model": decoder, "dtype": "int8"},
        "batch_size must be an integer": {"model": decoder, "batch_size": 0},
        "device 'cuda:7' cannot be used": {"model": decoder, "device": "cuda:7"},
        "bare has no tokenizer": {"model": str(bare)},
        "pickled cannot be loaded: .*safetensors": {"model": str(pickled)},
    }
    for words, params in refused.items():
        with pytest.raises(PrepareError, match=words):
            prepare(**params)


def test_a_hub_id_without_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(PrepareError, match="nobody/nothing cannot be loaded"):
        prepare(model="nobody/nothing")


def test_nan_does_not_pass_the_contract(build: Build) -> None:
    spec = FunctionSpec(name="rm", target="reward_model", params={"model": build(break_weight=True)})
    bound = bind(spec)
    result = run_unit(bound, Batch(prompts=["1+1="], completions=["2"]), (5,))
    assert bound.granularity == "batch"
    assert [failure.message for failure in result.failures] == ["rm returned NaN for sample 5"]


def test_it_is_loaded_once(decoder: str) -> None:
    assert load_classifier(Options(model=decoder)) is load_classifier(Options(model=decoder))


def test_micro_batches_hold_their_bounds() -> None:
    assert list(micro_batches([1, 9, 3, 2], 3, None)) == [[1, 2, 3], [0]]
    assert list(micro_batches([1, 9, 3, 2], 3, 6)) == [[1], [2, 3], [0]]
    assert list(micro_batches([], 3, 6)) == []


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, rewards.functions.reward_model as _; assert not {'torch', 'transformers'} & set(sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=30)
