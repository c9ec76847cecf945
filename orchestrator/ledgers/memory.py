"""Memory that the parts of a recipe need on each GPU, in bytes, with the arithmetic as text. An estimate from below:
activations, buffers and fragmentation come on top."""

from dataclasses import dataclass

from orchestrator.facts import ModelFacts
from orchestrator.schema import RunConfig

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
GIB = 2**30
LIGHT_OPTIMIZERS = ("adafactor", "sgd", "adalomo", "lomo", "galore")
"""First words of TrainingArguments' `optim` that keep no two moments a weight."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Bytes on each GPU, and how they come about."""

    bytes: float
    terms: str

    @property
    def gib(self) -> float:
        return self.bytes / GIB


def num_parameters(model: ModelFacts) -> float | None:
    """From the size of the weight files and their dtype."""
    width = BYTES.get(model.weight_dtype or "")
    return model.weight_bytes / width if model.weight_bytes and width else None


def trainer_need(run: RunConfig, params: float, world: int) -> Need:
    """Weights, gradients and Adam's two moments.

    Under DeepSpeed 16 bytes a parameter (2 weight, 2 gradient, 12 optimizer: master copy and moments in float32), of
    which ZeRO-1 shards the 12, ZeRO-2 also the gradients, ZeRO-3 all of it (Rajbhandari et al. 2020, ZeRO, section 3).
    Otherwise everything has the model's dtype. With LoRA only the frozen weights count.
    """
    width, stage = BYTES[run.model.dtype], run.launcher.zero_stage
    reference = params * width if run.trainer.args.get("beta") and run.trainer.lora.r is None else 0.0
    if run.trainer.lora.r is not None:
        total, terms = params * width, f"{_billions(params)} x {width} B frozen weights (LoRA)"
        total /= world if stage == 3 else 1
    elif stage is not None:
        kept = {1: 4.0, 2: 2.0, 3: 0.0}[stage]
        moments = 0.0 if run.launcher.offload else 1.0
        total = params * (kept + (16.0 - kept) * moments / world)
        terms = f"{_billions(params)} x ({kept:g} + {(16 - kept) * moments:g}/{world}) B (ZeRO-{stage})"
    else:
        light = str(run.trainer.args.get("optim", "")).split("_")[0] in LIGHT_OPTIMIZERS or "8bit" in str(
            run.trainer.args.get("optim", "")
        )
        copies = 2 if light else 4
        total = params * width * copies
        terms = f"{_billions(params)} x {width} B x {copies} (weights, gradients{'' if light else ', two moments'})"
    if reference:
        total += reference / (world if stage == 3 else 1)
        terms += f" + {_billions(params)} x {width} B reference model"
    return Need(bytes=total, terms=terms)


def generation_need(run: RunConfig, model: ModelFacts, params: float, size: int) -> Need:
    """Weights, and the KV cache of one sequence of max_model_len tokens, over the GPUs of one engine.

    KV bytes a token: 2 (key, value) x layers x kv heads x head dimension x bytes (vLLM's KVCacheSpec). With one kv head
    only 1: latent attention (MLA) keeps a single vector, and the config does not tell it from multi-query attention.
    """
    width, tokens = BYTES[run.generation.dtype], run.generation.max_model_len
    heads, head_dim, layers = model.num_kv_heads or model.num_heads, model.head_dim, model.num_layers
    weights = params * width / size
    terms = f"{_billions(params)} x {width} B / {size} weights"
    cache = 0.0
    if heads and head_dim and layers:
        vectors = 2 if heads > 1 else 1
        cache = 1.0 * vectors * layers * heads * head_dim * width * tokens / size
        terms += (
            f" + {vectors} x {layers} layers x {heads} heads x {head_dim} x {width} B x {tokens} tokens / {size} KV"
        )
    return Need(bytes=weights + cache, terms=terms)


def _billions(params: float) -> str:
    return f"{params / 1e9:.2f} G parameters"
