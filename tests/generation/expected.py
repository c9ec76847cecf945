"""What a server should answer, computed another way: one plain forward per sequence, and numpy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from orchestrator.generation.params import Sampling

Floats = npt.NDArray[np.float64]


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max()
    with np.errstate(divide="ignore"):
        return shifted - np.log(np.exp(shifted).sum())


def logits_of(model: Any, ids: Sequence[int]) -> Floats:
    """[tokens, vocab] of one sequence, no padding, no cache."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([list(ids)])).logits[0].double().numpy()


def processed(logits: Floats, seen: Sequence[int], sampling: Sampling) -> Floats:
    """Log-probs a token is drawn with, for one position [vocab]."""
    logits = logits.copy()
    for token in set(seen):
        logits[token] *= sampling.repetition_penalty if logits[token] < 0 else 1 / sampling.repetition_penalty
    if sampling.temperature == 0:
        return log_softmax(logits)
    logits /= sampling.temperature
    probs = np.exp(log_softmax(logits))
    logits[probs < sampling.min_p * probs.max()] = -np.inf
    if sampling.top_k > 0:
        logits[logits < np.sort(logits)[-min(sampling.top_k, len(logits))]] = -np.inf
    if sampling.top_p < 1:
        probs = np.exp(log_softmax(logits))
        order = np.argsort(-probs)
        # A token stays while the ones before it have not yet filled top_p.
        before = np.concatenate([[0.0], np.cumsum(probs[order])[:-1]])
        logits[order[before >= sampling.top_p]] = -np.inf
    return log_softmax(logits)


def completion_logprobs(model: Any, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> list[float]:
    """Log-prob of each token of a completion."""
    ids = [*prompt, *tokens]
    logits = logits_of(model, ids)
    start = len(prompt)
    return [
        float(processed(logits[start + i - 1], ids[: start + i], sampling)[token]) for i, token in enumerate(tokens)
    ]


def sequence_logprobs(model: Any, ids: Sequence[int]) -> list[float]:
    """Log-prob of every token after the first, temperature 1."""
    logits = logits_of(model, ids)
    return [float(log_softmax(logits[i - 1])[ids[i]]) for i in range(1, len(ids))]


def greedy(model: Any, prompt: Sequence[int], max_tokens: int, eos: int) -> list[int]:
    """Argmax, one token at a time."""
    ids = list(prompt)
    while len(ids) < len(prompt) + max_tokens:
        ids.append(int(logits_of(model, ids)[-1].argmax()))
        if ids[-1] == eos:
            break
    return ids[len(prompt) :]
