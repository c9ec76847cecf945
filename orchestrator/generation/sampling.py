"""From logits to tokens: pure functions over rows, the same for a row whatever else is in its batch.

Order as in vLLM: repetition penalty, temperature, min_p, top_k, top_p. Temperature 0 is greedy: the other
filters are then off, as in vLLM, and log-probs are those of the (penalised) logits at temperature 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from orchestrator.generation.params import Sampling

UInt64 = npt.NDArray[np.uint64]

# Below this temperature vLLM samples greedily.
GREEDY_BELOW = 1e-5

# splitmix64 (Steele, Lea, Flood 2014): the increment and the two multipliers of its finaliser.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)


def _mix(x: UInt64) -> UInt64:
    x = (x ^ (x >> np.uint64(30))) * _MIX_A
    x = (x ^ (x >> np.uint64(27))) * _MIX_B
    return x ^ (x >> np.uint64(31))


def row_keys(seed: int, prompt_index: int, choices: Sequence[int]) -> UInt64:
    """One 64-bit key per choice of a prompt, shape [len(choices)]; it names the row's whole random stream."""
    key = np.full(len(choices), seed & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
    # Arrays, not scalars: numpy lets arrays wrap silently.
    for index in (np.asarray([prompt_index], dtype=np.uint64), np.asarray(choices, dtype=np.uint64)):
        key = _mix(_mix(key + _STEP) + (index + np.uint64(1)) * _STEP)
    return key


def uniforms(keys: UInt64, step: int | UInt64) -> npt.NDArray[np.float64]:
    """The `step`-th number in [0, 1) of each row's stream, shape [rows]; `step` may differ by row.

    48 bits, so that the number times a float64 sum always stays below the sum: no token of probability zero is drawn.
    """
    offset = (np.full_like(keys, step) + np.uint64(1)) * _STEP
    return (_mix(keys + offset) >> np.uint64(16)).astype(np.float64) / 2.0**48


@dataclass(frozen=True)
class RowSettings:
    """Sampling settings of a batch, each of shape [rows, 1]; None where no row uses the setting."""

    keys: UInt64
    greedy: Tensor | None
    temperature: Tensor | None
    top_p: Tensor | None
    top_k: Tensor | None
    min_p: Tensor | None
    repetition_penalty: Tensor | None

    def select(self, rows: Tensor) -> "RowSettings":
        """The settings of some rows, `rows` holding their indices."""
        picked = {name: None if value is None else value[rows] for name, value in vars(self).items() if name != "keys"}
        return RowSettings(keys=self.keys[rows.numpy()], **picked)


def row_settings(sampling: Sequence[Sampling], keys: UInt64) -> RowSettings:
    """Per-row settings as tensors; `sampling` holds one entry per row."""
    greedy = [s.temperature < GREEDY_BELOW for s in sampling]

    def column(values: list[float], neutral: float) -> Tensor | None:
        values = [neutral if is_greedy else value for value, is_greedy in zip(values, greedy, strict=True)]
        return None if all(value == neutral for value in values) else torch.tensor(values)[:, None]

    penalties = [s.repetition_penalty for s in sampling]
    top_k = column([float(max(s.top_k, 0)) for s in sampling], 0.0)
    return RowSettings(
        keys=keys,
        greedy=torch.tensor(greedy)[:, None] if any(greedy) else None,
        temperature=column([s.temperature for s in sampling], 1.0),
        top_p=column([s.top_p for s in sampling], 1.0),
        top_k=None if top_k is None else top_k.long(),
        min_p=column([s.min_p for s in sampling], 0.0),
        repetition_penalty=torch.tensor(penalties)[:, None] if set(penalties) != {1.0} else None,
    )


def processed_logits(logits: Tensor, settings: RowSettings, seen: Tensor | None) -> Tensor:
    """Logits after every filter, float32 [rows, vocab]; what is filtered out is -inf.

    `seen` [rows, vocab] marks the tokens of the prompt and of the completion so far; needed for the penalty only.
    """
    logits = logits.float()
    if settings.repetition_penalty is not None and seen is not None:
        penalty = torch.where(seen, settings.repetition_penalty, 1.0)
        logits = torch.where(logits > 0, logits / penalty, logits * penalty)
    if settings.temperature is not None:
        logits = logits / settings.temperature
    if settings.min_p is not None:
        probs = logits.softmax(dim=-1)
        logits = logits.masked_fill(probs < probs.amax(dim=-1, keepdim=True) * settings.min_p, -torch.inf)
    if settings.top_k is not None:
        logits = _top_k(logits, settings.top_k)
    if settings.top_p is not None:
        logits = _top_p(logits, settings.top_p)
    return logits


def _top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    vocab = logits.shape[-1]
    kept = torch.where(top_k == 0, vocab, top_k.clamp(max=vocab))
    threshold = logits.topk(int(kept.max()), dim=-1).values.gather(-1, kept - 1)
    return logits.masked_fill(logits < threshold, -torch.inf)


def _top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    # Sorting a large vocabulary costs as much as the model's pass: only what no other filter took out is sorted.
    most = int((logits != -torch.inf).sum(dim=-1).max())
    ordered, order = (part.flip(-1) for part in logits.topk(most, dim=-1))
    below = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
    below[:, -1] = False
    ordered = ordered.masked_fill(below, -torch.inf)
    return torch.full_like(logits, -torch.inf).scatter_(-1, order, ordered)


def draw(logits: Tensor, settings: RowSettings, step: int | UInt64) -> tuple[Tensor, Tensor, Tensor]:
    """Draw one token per row from processed logits by inverting the cumulative distribution.

    `step` counts the tokens that the row, or each row, drew before.

    Returns tokens [rows], their log-probs [rows] and the whole table of log-probs [rows, vocab], float32.
    A row whose logits hold NaN or +inf gets the log-prob NaN; the caller must look.
    """
    table = logits.log_softmax(dim=-1)
    cumulative = table.exp().double().cumsum(dim=-1)
    point = torch.from_numpy(uniforms(settings.keys, step))[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, point, right=True).clamp(max=logits.shape[-1] - 1)
    if settings.greedy is not None:
        tokens = torch.where(settings.greedy, logits.argmax(dim=-1, keepdim=True), tokens)
    return tokens[:, 0], table.gather(-1, tokens)[:, 0], table
