"""The trainer's side of the weight-sync proof: log-probs of a fixed probe, and seeded perturbation of every tensor."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

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
    """
    device = next(model.parameters()).device
    ids = torch.tensor(sequences, device=device)
    was_training = model.training
    model.eval()
    try:
        # accelerate wraps the forward of a model under mixed precision in autocast, and keeps the plain one here.
        forward = getattr(model, "_original_forward", model.forward)
        logits = forward(input_ids=ids, use_cache=False).logits[:, :-1].float()
    finally:
        model.train(was_training)
    chosen = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None])
    return chosen.squeeze(-1).tolist()


def largest_gap(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """Largest absolute difference over all tokens, in nats; NaN when there is one anywhere, which max() would hide."""
    pairs = [(a, b) for ours_row, row in zip(ours, theirs, strict=True) for a, b in zip(ours_row, row, strict=True)]
    gaps = [abs(a - b) for a, b in pairs]
    return math.nan if any(map(math.isnan, gaps)) else max(gaps)


@contextmanager
def perturbed(model: nn.Module, seed: int, noise: float) -> Iterator[None]:
    """Every floating-point parameter moved by seeded noise; afterwards bit for bit as before.

    `noise` is relative to a tensor's root mean square.
    """
    parameters = [p for p in model.parameters() if p.is_floating_point()]
    kept = [p.detach().clone() for p in parameters]
    generator = torch.Generator().manual_seed(seed)
    try:
        with torch.no_grad():
            for p in parameters:
                direction = torch.randn(p.shape, generator=generator).to(p)
                size = p.float().pow(2).mean().sqrt().clamp_min(1e-3).to(p)
                p.add_(direction * size * noise)
        yield
    finally:
        with torch.no_grad():
            for p, before in zip(parameters, kept, strict=True):
                p.copy_(before)
