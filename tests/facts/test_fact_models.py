"""What a checkpoint's files say, in the layouts that people publish."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from made_up_models import QWEN_LIKE, SHARDS, TOKENIZER, write_json, write_model, write_weights

from orchestrator.assets import ASSETS
from orchestrator.facts import ModelFacts, model_facts


def known(folder: Path) -> ModelFacts:
    facts = model_facts(str(folder), None)
    assert isinstance(facts, ModelFacts), facts
    return facts


def reason(folder: Path) -> str:
    facts = model_facts(str(folder), None)
    assert isinstance(facts, str)
    return facts


def test_every_fact_of_a_plain_checkpoint(tmp_path: Path) -> None:
    facts = asdict(known(write_model(tmp_path)))
    for name in ("tokenizer_sha256", "prompt_files_sha256"):
        assert len(facts.pop(name)) == 64
    assert facts == {
        "path": str(tmp_path),
        "vocab_size": 128,
        "max_positions": 512,
        "num_tokens": 8,
        "num_base_tokens": 6,
        "has_chat_template": True,
        "num_heads": 8,
        "num_kv_heads": 2,
        "num_layers": 3,
        "head_dim": 8,
        "weight_bytes": (tmp_path / "model.safetensors").stat().st_size,
        "weight_dtype": "bfloat16",
        "num_experts": 0,
        "tied_embeddings": True,
        "generation_eos_ids": (7, 6),
        "tokenizer_eos_id": 7,
        "weights_on_disk": True,
    }


def test_the_model_that_ships_is_what_transformers_says() -> None:
    from transformers import AutoConfig, AutoTokenizer

    folder = ASSETS / "tiny_math"
    facts, config, tokenizer = known(folder), AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert facts.vocab_size == config.vocab_size
    assert facts.max_positions == config.max_position_embeddings
    assert facts.num_heads == config.num_attention_heads
    assert facts.num_kv_heads == config.num_key_value_heads
    assert facts.num_layers == config.num_hidden_layers
    assert facts.head_dim == config.hidden_size // config.num_attention_heads
    assert facts.tied_embeddings == config.tie_word_embeddings
    assert facts.num_tokens == len(tokenizer)
    assert facts.tokenizer_eos_id == tokenizer.eos_token_id
    assert facts.weight_bytes == (folder / "model.safetensors").stat().st_size


def test_a_changed_folder_is_read_again(tmp_path: Path) -> None:
    assert known(write_model(tmp_path)).vocab_size == 128
    write_json(tmp_path / "config.json", QWEN_LIKE | {"vocab_size": 131072})
    assert known(tmp_path).vocab_size == 131072


def test_what_the_config_leaves_out_comes_from_the_weights(tmp_path: Path) -> None:
    """Gemma 3 writes only what differs from its class: no vocabulary, no word on tied embeddings."""
    bare = {"model_type": "gemma3", "text_config": {"hidden_size": 64, "num_hidden_layers": 34}}
    facts = known(write_model(tmp_path, bare))
    assert (facts.vocab_size, facts.weight_dtype, facts.tied_embeddings) == (128, "bfloat16", True)
    head = {"lm_head.weight": ("F32", [200, 64]), "model.embed_tokens.weight": ("F32", [200, 64])}
    write_weights(tmp_path / "model.safetensors", head)
    facts = known(tmp_path)
    assert (facts.vocab_size, facts.weight_dtype, facts.tied_embeddings) == (200, "float32", False)


def test_shards_are_added_up_and_others_copies_left_out(tmp_path: Path) -> None:
    folder = write_model(tmp_path, shards=True)
    write_weights(folder / "consolidated.safetensors", {"x": ("F32", [1000, 1000])})
    assert known(folder).weight_bytes == sum((folder / name).stat().st_size for name in SHARDS)


def test_an_index_without_its_shards(tmp_path: Path) -> None:
    folder = write_model(tmp_path, shards=True)
    (folder / SHARDS[1]).unlink()
    assert reason(folder) == (
        f"{folder} lacks 1 of the 2 weight files of model.safetensors.index.json: model-00002-of-00002.safetensors"
    )


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (["pytorch_model.bin"], "holds no .safetensors weights, only pytorch_model.bin: save it again"),
        (["model-q4.gguf"], "only model-q4.gguf"),
        (["adapter_config.json", "pytorch_model.bin"], "only an adapter for another model"),
        ([], "holds no .safetensors weights"),
    ],
)
def test_folders_without_safetensors(tmp_path: Path, others: list[str], said: str) -> None:
    (write_model(tmp_path) / "model.safetensors").unlink()
    for name in others:
        (tmp_path / name).touch()
    assert said in reason(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", "{", "config.json cannot be used"),
        ("config.json", "[]", "holds no JSON object"),
        ("config.json", '{"vocab_size": 1, "num_hidden_layers": "many"}', "config.json cannot be used"),
        ("generation_config.json", '{"eos_token_id": "x"}', "cannot be used"),
        ("tokenizer.json", "{}}", "tokenizer's files"),
        ("tokenizer.json", '{"model": {}}', "KeyError('vocab')"),
        ("tokenizer_config.json", '{"added_tokens_decoder": []}', "tokenizer's files"),
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1", "no safetensors file"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: str, said: str) -> None:
    (write_model(tmp_path) / name).write_text(content)
    assert said in reason(tmp_path)
    assert str(tmp_path) in reason(tmp_path)


def test_no_config_at_all(tmp_path: Path) -> None:
    assert "config.json cannot be used" in reason(tmp_path)


def test_without_vocab_size_and_weights_that_tell_it(tmp_path: Path) -> None:
    write_weights(write_model(tmp_path, {}) / "model.safetensors", {"x": ("F32", [2, 2])})
    assert reason(tmp_path).endswith("it has no vocab_size")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"eos_token": {"content": "<|im_end|>", "lstrip": False}}, 7),
        ({"eos_token": "ab"}, 2),
        ({"eos_token": "<eot>", "added_tokens_decoder": {"9": {"content": "<eot>"}}}, 9),
        ({"eos_token": "not there"}, None),
        ({}, None),
    ],
)
def test_the_tokenizers_end(tmp_path: Path, settings: dict[str, Any], expected: int | None) -> None:
    write_json(write_model(tmp_path) / "tokenizer_config.json", settings)
    assert known(tmp_path).tokenizer_eos_id == expected


def test_the_end_in_special_tokens_map(tmp_path: Path) -> None:
    write_json(write_model(tmp_path) / "tokenizer_config.json", {})
    write_json(tmp_path / "special_tokens_map.json", {"eos_token": {"content": "<|endoftext|>"}})
    assert known(tmp_path).tokenizer_eos_id == 6


def test_a_unigram_vocabulary_is_a_list(tmp_path: Path) -> None:
    unigram = {"model": {"vocab": [["<unk>", 0.0], ["</s>", 0.0], ["a", -1.5]]}, "added_tokens": None}
    write_json(write_model(tmp_path) / "tokenizer.json", unigram)
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": "</s>"})
    facts = known(tmp_path)
    assert (facts.num_tokens, facts.tokenizer_eos_id, facts.has_chat_template) == (3, 1, False)


def test_without_a_tokenizer(tmp_path: Path) -> None:
    write_model(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    facts = known(tmp_path)
    assert facts.num_tokens is facts.tokenizer_sha256 is facts.prompt_files_sha256 is facts.tokenizer_eos_id is None


def test_what_changes_a_prompts_tokens_changes_its_digest(tmp_path: Path) -> None:
    before = known(write_model(tmp_path))
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    templated = known(tmp_path)
    assert templated.tokenizer_sha256 == before.tokenizer_sha256
    assert templated.prompt_files_sha256 != before.prompt_files_sha256
    write_json(tmp_path / "tokenizer.json", TOKENIZER | {"pre_tokenizer": None})
    assert known(tmp_path).tokenizer_sha256 != before.tokenizer_sha256


def test_what_is_neither_folder_nor_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert model_facts("/nowhere/model", None) == "/nowhere/model is no folder"
    assert model_facts("org/name", None) == "org/name is neither a folder nor in the local hub cache"


def test_the_hub_cache_by_branch_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    repo = tmp_path / "huggingface" / "hub" / "models--org--name"
    write_model(repo / "snapshots" / "abc")
    write_model(repo / "snapshots" / "def", QWEN_LIKE | {"vocab_size": 99})
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    for revision, vocab_size in ((None, 128), ("def", 99)):
        facts = model_facts("org/name", revision)
        assert isinstance(facts, ModelFacts)
        assert facts.vocab_size == vocab_size
    assert isinstance(model_facts("org/name", "v2"), str)


def test_a_large_tokenizer_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = known(write_model(tmp_path))
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("a file that has not changed is parsed again"))
    assert known(tmp_path) is first
