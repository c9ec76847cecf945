"""`python -m tests.training.faulty_server FAULT [server flags]`: the embedded server, with one planted fault.

A real process that answers every weight update with 200 and advances its version; only the weights are wrong.
"""

import sys
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from orchestrator.generation import server, weights

copy_into = weights.copy_into
updates = 0


def ignore(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Takes nothing."""


def miss_one(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Takes all tensors but the smallest kind: one norm of the last layer."""
    missed = next(name for name in reversed(list(tensors)) if "layernorm" in name)
    copy_into(model, {name: tensor for name, tensor in tensors.items() if name != missed})


def stale_lm_head(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Keeps the lm_head that it started with, although it is tied to the embedding."""
    head: nn.Linear = model.lm_head  # type: ignore[assignment]
    embedding: nn.Embedding = model.model.embed_tokens  # type: ignore[assignment, union-attr]
    if head.weight is embedding.weight:
        head.weight = nn.Parameter(embedding.weight.detach().clone())
    kept = head.weight.detach().clone()
    copy_into(model, tensors)
    with torch.no_grad():
        head.weight.copy_(kept)


def other_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Serves a model of the same shapes that counts positions twice as fast: what no tensor says."""
    global updates
    updates += 1
    if updates == 1:
        rotary: nn.Module = model.model.rotary_emb  # type: ignore[assignment, union-attr]
        rotary.inv_freq.mul_(2.0)  # type: ignore[operator, union-attr]
    copy_into(model, tensors)


def stop_after_step_five(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Takes the canary's two updates and those of five steps, and no more."""
    global updates
    updates += 1
    if updates <= 2 + 5:
        copy_into(model, tensors)


FAULTS: dict[str, Callable[[nn.Module, Mapping[str, Tensor]], None]] = {
    "none": copy_into,
    "ignore": ignore,
    "miss-one": miss_one,
    "stale-lm-head": stale_lm_head,
    "other-model": other_model,
    "stop-after-step-five": stop_after_step_five,
}

if __name__ == "__main__":
    weights.copy_into = FAULTS[sys.argv[1]]
    sys.exit(server.main(sys.argv[2:]))
