"""The trainer's side of the weight-sync proof: log-probs of a fixed probe, and seeded perturbation of every tensor."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from orchestrator.generation.model_weights import reshard, shard

LEAST_RMS = 1e-3
"""What noise is relative to where a tensor is zero, or nearly."""
NUM_PROBES = 4
PROBE_LENGTH = 16  # tokens; every position but the first has a log-prob


def probe_sequences(vocab_size: int, max_length: int, seed: int) -> list[list[int]]:
    """NUM_PROBES equally long sequences of token ids from a seed: random ids touch many rows of the embedding."""
    generator = torch.Generator().manual_seed(seed)
    length = min(PROBE_LENGTH, max_length)
    return torch.randint(0, vocab_size, (NUM_PROBES, length), generator=generator).tolist()


@torch.no_grad()
def sequence_logprobs(model: nn.Module, sequences: list[list[int]]) -> list[list[float]]:
    """log p(token | tokens before it) in nats, for each token after the first; all sequences are equally long.

    Computed outside autocast, in the weights' own dtype, the softmax in float32: what a server of them says.
    Collective where the model is sharded: every rank must call it.
    """
    ids = torch.tensor(sequences, device=_device(model))
    was_training = model.training
    model.eval()
    try:
        with _without_autocast(model):
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    finally:
        model.train(was_training)
        reshard(model)
    chosen = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None])
    return chosen.squeeze(-1).tolist()


def _device(model: nn.Module) -> torch.device:
    parameter = next(model.parameters())
    # Shards may be kept in the machine's memory; what is computed with is not.
    return torch.device(parameter.device_mesh.device_type) if isinstance(parameter, DTensor) else parameter.device


@contextmanager
def _without_autocast(model: nn.Module) -> Iterator[None]:
    """accelerate wraps the forward of a model under mixed precision in autocast, and keeps the plain one beside it.

    The model is still called as a module: the hooks that gather a sharded one run.
    """
    wrapped, plain = model.forward, vars(model).get("_original_forward")
    if plain is not None:
        model.forward = plain
    try:
        yield
    finally:
        if plain is not None:
            model.forward = wrapped


def largest_gap(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """Largest absolute difference over all tokens, in nats; NaN when there is one anywhere, which max() would hide."""
    gaps = _gaps(ours, theirs)
    return math.nan if any(map(math.isnan, gaps)) else max(gaps)


def mean_gap(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """Mean absolute difference over all tokens, in nats; NaN when there is one anywhere."""
    gaps = _gaps(ours, theirs)
    return sum(gaps) / len(gaps)


def _gaps(ours: list[list[float]], theirs: list[list[float]]) -> list[float]:
    pairs = [(a, b) for ours_row, row in zip(ours, theirs, strict=True) for a, b in zip(ours_row, row, strict=True)]
    return [abs(a - b) for a, b in pairs]


def every_parameter(parameter: nn.Parameter) -> bool:
    return True


def is_adapter(parameter: nn.Parameter) -> bool:
    """PEFT freezes everything but what it trains."""
    return parameter.requires_grad


@contextmanager
def perturbed(
    model: nn.Module, seed: int, noise: float, which: Callable[[nn.Parameter], bool] = every_parameter
) -> Iterator[None]:
    """Every floating-point parameter (of those that `which` names) moved by seeded noise; afterwards bit for bit as
    before.

    `noise` is relative to the root mean square of the tensor that a server holds: an adapter's B, which is zero at the
    start, is moved so far that the merged weight moves by that much. Of a sharded model each rank moves its shards.
    """
    reshard(model)
    sizes = dict(_sizes_of_b(model))
    shards = [
        (shard(p), sizes.get(p)) for p in model.parameters() if p.is_floating_point() and which(p) and shard(p).numel()
    ]
    # In the machine's memory: a GPU may have no room for a second model.
    kept = [held.detach().to("cpu", copy=True) for held, _ in shards]
    generator = torch.Generator().manual_seed(seed)
    try:
        with torch.no_grad():
            for held, size in shards:
                direction = torch.randn(held.shape, generator=generator).to(held)
                held.add_(direction * (noise * (size or max(_rms(held), LEAST_RMS))))
        yield
    finally:
        reshard(model)
        with torch.no_grad():
            for (held, _), before in zip(shards, kept, strict=True):
                held.copy_(before)


def _sizes_of_b(model: nn.Module) -> Iterator[tuple[nn.Parameter, float]]:
    """For each adapter's B, the root mean square at which scaling x B A is as large as the weight it is added to.

    A product of independent [out, r] and [r, in] has the root mean square sqrt(r) x theirs.
    """
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            weight = _rms(shard(layer.get_base_layer().get_parameter("weight")))
            for name in layer.r:
                a, b = _factors(layer, name)
                unit = abs(layer.scaling[name]) * math.sqrt(layer.r[name]) * _rms(shard(a))
                if unit > 0:
                    yield b, weight / unit


def _factors(layer: Any, adapter: str) -> tuple[nn.Parameter, nn.Parameter]:
    if adapter in layer.lora_embedding_A:
        return layer.lora_embedding_A[adapter], layer.lora_embedding_B[adapter]
    return layer.lora_A[adapter].weight, layer.lora_B[adapter].weight


def _rms(tensor: Tensor) -> float:
    return tensor.detach().float().pow(2).mean().sqrt().item() if tensor.numel() else 0.0
