"""What config.json says under the names of each architecture."""

from dataclasses import asdict
from typing import Any

import pytest
from made_up_models import QWEN_LIKE

from orchestrator.facts.model_config import architecture

GPT2 = {"n_head": 12, "n_layer": 12, "n_embd": 768, "n_positions": 1024, "vocab_size": 50257}
MLA = QWEN_LIKE | {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "n_routed_experts": 256, "num_key_value_heads": 128}
YARN_FROM_SHORT = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (GPT2, {"num_heads": 12, "num_kv_heads": 12, "num_layers": 12, "head_dim": 64, "max_positions": 1024}),
        (QWEN_LIKE | {"head_dim": 128}, {"head_dim": 128}),
        (QWEN_LIKE | {"num_local_experts": 8}, {"num_experts": 8}),
        (QWEN_LIKE | {"num_experts": None}, {"num_experts": 0}),
        (MLA, {"num_experts": 256, "num_kv_heads": 1, "head_dim": 576}),
        # Falcon 7B: one head of keys for all, whatever num_kv_heads says; 40B has groups.
        ({"n_head": 71, "multi_query": True, "num_kv_heads": 71, "hidden_size": 4544}, {"num_kv_heads": 1}),
        ({"n_head": 128, "multi_query": True, "new_decoder_architecture": True, "n_head_kv": 8}, {"num_kv_heads": 8}),
        # DBRX keeps them one level down.
        (
            {"n_heads": 48, "attn_config": {"kv_n_heads": 8}, "ffn_config": {"moe_num_experts": 16}},
            {"num_kv_heads": 8, "num_experts": 16},
        ),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, {"max_positions": 131072}),
        ({"seq_length": 32768}, {"max_positions": 32768}),
        ({"num_attention_heads": [8, 16, 16]}, {"num_heads": 16}),
        ({"eos_token_id": [1, 106], "dtype": "torch.float16"}, {"eos_ids": (1, 106), "dtype": "float16"}),
        ({}, {"num_heads": None, "num_kv_heads": None, "head_dim": None, "max_positions": None, "eos_ids": None}),
        # A part that generates text inside one that sees and speaks.
        (
            {"thinker_config": {"text_config": {"num_attention_heads": 28}, "audio_config": {}}, "talker_config": {}},
            {"num_heads": 28},
        ),
        (
            {"text_config": {"vocab_size": 9, "tie_word_embeddings": False}, "tie_word_embeddings": True},
            {"vocab_size": 9, "tied_embeddings": True},
        ),
        ({"text_config": {"torch_dtype": "bfloat16", "eos_token_id": 3}}, {"dtype": "bfloat16", "eos_ids": (3,)}),
    ],
)
def test_names_differ_between_architectures(config: dict[str, Any], expected: dict[str, Any]) -> None:
    found = asdict(architecture(config))
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("positions", "rope", "expected"),
    [
        (4096, None, 4096),
        (4096, {"type": "linear", "factor": 4.0}, 16384),
        (4096, {"rope_type": "dynamic", "factor": 2.0}, 8192),
        (4096, {"type": "dynamic", "alpha": 1000.0}, 4096),
        (131072, {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 131072),
        (131072, {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, 131072),
        # Qwen's recipe for a long context leaves max_position_embeddings as it was; others write the long one.
        (32768, YARN_FROM_SHORT, 131072),
        (131072, YARN_FROM_SHORT, 131072),
        (163840, {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}, 163840),
        (40960, {"rope_type": "yarn", "factor": 4.0}, 40960),
        (32768, {"type": "mrope", "mrope_section": [16, 24, 24]}, 32768),
        (4096, {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {}}, 32768),
    ],
)
def test_positions_under_rope_scaling(positions: int, rope: dict[str, Any] | None, expected: int) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        assert architecture({"max_position_embeddings": positions, key: rope}).max_positions == expected


def test_gemma3_has_its_positions_scaled_already() -> None:
    text = {"max_position_embeddings": 131072, "model_type": "gemma3_text", "rope_scaling": {"factor": 8.0}}
    assert architecture({"model_type": "gemma3", "text_config": text}).max_positions == 131072
