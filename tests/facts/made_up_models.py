"""Checkpoint folders as they are published, small: real layouts, made-up numbers."""

import json
import struct
from pathlib import Path
from typing import Any

QWEN_LIKE: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "eos_token_id": 7,
    "hidden_size": 64,
    "max_position_embeddings": 512,
    "num_attention_heads": 8,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 128,
}
TOKENIZER: dict[str, Any] = {
    "added_tokens": [{"id": 6, "content": "<|endoftext|>"}, {"id": 7, "content": "<|im_end|>"}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 5}, "merges": [["a", "b"]]},
}
TOKENIZER_CONFIG: dict[str, Any] = {"eos_token": "<|im_end|>", "chat_template": "{{ messages }}"}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def write_model(folder: Path, config: dict[str, Any] | None = None, *, shards: bool = False) -> Path:
    """A folder with config, tokenizer and weights; the same for each caller until it changes something."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", QWEN_LIKE if config is None else config)
    write_json(folder / "generation_config.json", {"eos_token_id": [7, 6]})
    write_json(folder / "tokenizer.json", TOKENIZER)
    write_json(folder / "tokenizer_config.json", TOKENIZER_CONFIG)
    embedding = {"model.embed_tokens.weight": ("BF16", [128, 64])}
    layer = {"model.layers.0.mlp.up_proj.weight": ("BF16", [96, 64])}
    if not shards:
        write_weights(folder / "model.safetensors", embedding | layer)
        return folder
    for name, tensors in zip(SHARDS, (embedding, layer), strict=True):
        write_weights(folder / name, tensors)
    weight_map = dict.fromkeys(embedding, SHARDS[0]) | dict.fromkeys(layer, SHARDS[1])
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    return folder


def write_weights(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """A safetensors file of zeros."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = (2 if "16" in dtype else 4) * shape[0] * shape[1]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
