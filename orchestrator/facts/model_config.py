"""What config.json says, whatever its architecture calls it. The names are those that vLLM and transformers read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEAD_DIM = ("head_dim", "hidden_size_per_head", "attention_head_dim")
KV_HEADS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
POSITIONS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
TEXT_CONFIGS = ("text_config", "llm_config", "language_config")
"""Where a multimodal model keeps the part that generates text."""

ALREADY_SCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
"""Kinds of rope scaling whose factor vLLM does not apply to max_position_embeddings (once more)."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """None = the config does not say."""

    vocab_size: int | None
    max_positions: int | None
    num_heads: int | None
    num_kv_heads: int | None
    num_layers: int | None
    head_dim: int | None
    num_experts: int
    tied_embeddings: bool | None
    dtype: str | None
    eos_ids: tuple[int, ...] | None


def architecture(config: Config) -> Architecture:
    """Of the model that generates text. Raises ValueError, TypeError on what is no config."""
    text = text_config(config)
    heads, head_dim = _int(text, HEADS), _head_dim(text)
    tied = [part["tie_word_embeddings"] for part in (config, text) if "tie_word_embeddings" in part]
    dtypes = [part[key] for part in (config, text) for key in ("dtype", "torch_dtype") if part.get(key)]
    eos = [part["eos_token_id"] for part in (config, text) if part.get("eos_token_id") is not None]
    return Architecture(
        vocab_size=_int(text, ("vocab_size", "padded_vocab_size")),
        max_positions=_positions(text),
        num_heads=heads,
        num_kv_heads=_kv_heads(text, heads),
        num_layers=_int(text, LAYERS),
        head_dim=head_dim,
        num_experts=_experts(text),
        tied_embeddings=bool(tied[0]) if tied else None,
        dtype=str(dtypes[0]).removeprefix("torch.") if dtypes else None,
        eos_ids=ids(eos[0]) if eos else None,
    )


def text_config(config: Config) -> Config:
    """The nested config of the part that generates text (two levels in models that also speak), else the whole."""
    nested = next((config[name] for name in TEXT_CONFIGS if isinstance(config.get(name), Mapping)), None)
    if nested is None and isinstance(config.get("thinker_config"), Mapping):
        nested = config["thinker_config"]
    return config if nested is None else text_config(nested)


def ids(value: Any) -> tuple[int, ...]:
    """Token ids, of which configs write one or a list."""
    return tuple(int(one) for one in (value if isinstance(value, list) else [value]))


def _int(part: Config, names: tuple[str, ...]) -> int | None:
    found = next((part[name] for name in names if part.get(name) is not None), None)
    if isinstance(found, list):
        # One number a layer: all of them must fit what is compared with them.
        found = max(found, default=None)
    return None if found is None else int(found)


def _head_dim(text: Config) -> int | None:
    if _latent_attention(text):
        return int(text["kv_lora_rank"]) + int(text.get("qk_rope_head_dim") or 0)
    hidden, heads = _int(text, HIDDEN), _int(text, HEADS)
    return _int(text, HEAD_DIM) or (hidden // heads if hidden and heads else None)


def _kv_heads(text: Config, heads: int | None) -> int | None:
    if _latent_attention(text):
        return 1
    # Falcon and GPT-BigCode name the number of heads, and then share one of them.
    if text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    nested = text.get("attn_config")
    return _int(text, KV_HEADS) or (_int(nested, ("kv_n_heads",)) if isinstance(nested, Mapping) else None) or heads


def _latent_attention(text: Config) -> bool:
    """DeepSeek's MLA: one compressed vector a token is cached, for all heads together."""
    return bool(text.get("kv_lora_rank"))


def _experts(text: Config) -> int:
    nested = text.get("ffn_config")
    return _int(text, EXPERTS) or (_int(nested, EXPERTS) if isinstance(nested, Mapping) else None) or 0


def _positions(text: Config) -> int | None:
    """The longest context, as vLLM derives it. 0.32 trusts max_position_embeddings under YaRN, older ones multiply the
    original length: the larger of the two is taken, as both compute correct positions up to it.
    """
    named = [int(text[name]) for name in POSITIONS if text.get(name) is not None]
    positions = min(named, default=None)
    if text.get("model_max_length"):  # Command-R
        positions = int(text["model_max_length"])
    if positions is None:
        return None
    for rope in _ropes(text):
        kind, factor = rope.get("rope_type", rope.get("type", "default")), rope.get("factor")
        original = rope.get("original_max_position_embeddings")
        if kind == "yarn" and factor and original:
            positions = max(positions, int(original * factor))
        elif kind not in ALREADY_SCALED and factor and "gemma3" not in str(text.get("model_type")):
            return int(positions * factor)
    return positions


def _ropes(text: Config) -> Iterator[Config]:
    """Rope settings: one for all layers, or one for each type of layer."""
    settings = text.get("rope_parameters") or text.get("rope_scaling")
    if not isinstance(settings, Mapping):
        return
    by_layer = [one for one in settings.values() if isinstance(one, Mapping)]
    yield from by_layer or [settings]
