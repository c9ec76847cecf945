import hashlib
import json
import os
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from orchestrator.assets import TINY_MATH
from orchestrator.data import load_rows

ROOT = Path(__file__).parents[2]
CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " \n"
MAX_BYTES = 3_000_000


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TINY_MATH, local_files_only=True)


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(TINY_MATH, local_files_only=True).eval()


def accuracy(model: Any, tokenizer: Any, num_samples: int, *, chat: bool = True, **how: Any) -> float:
    rows = load_rows("arithmetic", split="heldout", rows=None, seed=0, chat=chat)
    prompts = [
        tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
        if chat
        else row["prompt"]
        for row in rows
    ]
    tokens = tokenizer(prompts, padding=True, return_tensors="pt")
    torch.manual_seed(0)
    out = model.generate(**tokens, max_new_tokens=8, num_return_sequences=num_samples, **how)
    said = tokenizer.batch_decode(out[:, tokens["input_ids"].shape[1] :], skip_special_tokens=True)
    meant = [row["answer"] for row in rows for _ in range(num_samples)]
    return sum(a == b for a, b in zip(said, meant, strict=True)) / len(meant)


def test_it_is_small_and_shaped_for_vllm(model: Any) -> None:
    assert sum(path.stat().st_size for path in TINY_MATH.iterdir()) < MAX_BYTES
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.config.head_dim == 32
    assert model.dtype == torch.float32
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_its_settings_agree(model: Any, tokenizer: Any) -> None:
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        ids = {getattr(holder, name) for holder in (model.config, model.generation_config, tokenizer)}
        assert len(ids) == 1, name
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 128


def test_it_needs_no_code_of_ours_nor_a_new_transformers() -> None:
    settings = json.loads((TINY_MATH / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert "extra_special_tokens" not in settings
    assert not list(TINY_MATH.glob("*.py"))


@pytest.mark.parametrize("text", [CHARACTERS, CHARACTERS[::-1], " a ,  b .\n\n don't ", "12+7="])
def test_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


def test_the_chat_template(tokenizer: Any) -> None:
    asked = [{"role": "user", "content": "12+7="}]
    told = [*asked, {"role": "assistant", "content": "19"}]
    assert (
        tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False) == "<|user|>12+7=<|assistant|>"
    )
    assert tokenizer.apply_chat_template(told, tokenize=False) == "<|user|>12+7=<|assistant|>19<|end|>"
    marked = tokenizer.apply_chat_template(told, return_dict=True, return_assistant_tokens_mask=True)
    assert tokenizer.decode([i for i, m in zip(marked["input_ids"], marked["assistant_masks"], strict=True) if m]) == (
        "19<|end|>"
    )


def test_its_best_answer_is_right_with_and_without_the_template(model: Any, tokenizer: Any) -> None:
    assert accuracy(model, tokenizer, 1, do_sample=False) > 0.9
    assert accuracy(model, tokenizer, 1, chat=False, do_sample=False) > 0.9


def test_its_samples_are_noisy(model: Any, tokenizer: Any) -> None:
    # 6,400 answers: a standard error of 0.006.
    assert 0.45 < accuracy(model, tokenizer, 64) < 0.6


def build(out: Path) -> dict[str, str]:
    """Digest of each file that five steps of the builder write."""
    command = [
        sys.executable,
        str(ROOT / "examples/tiny_math/build.py"),
        "--out",
        str(out),
        "--steps",
        "5",
        "--no-verify",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


def test_the_builder_gives_the_same_bytes_twice(tmp_path: Path) -> None:
    first = build(tmp_path / "first")
    assert first == build(tmp_path / "second")
    shipped = {path.name for path in TINY_MATH.iterdir()}
    assert shipped - first.keys() == {"README.md"}
    # Everything but the weights is independent of the training.
    for name in first.keys() - {"model.safetensors"}:
        assert hashlib.sha256((TINY_MATH / name).read_bytes()).hexdigest() == first[name], name
