"""Forward passes of a left-padded batch with a KV cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache


@dataclass
class Context:
    """Everything the model remembers of the rows of a batch."""

    cache: Any
    """transformers' DynamicCache, rows first."""
    mask: Tensor
    """[rows, length], 1 for a token, 0 for padding on the left."""
    positions: Tensor
    """[rows, 1], the position of each row's last token."""

    def keep(self, rows: Tensor) -> None:
        """Keep (or repeat) the rows whose indices are given, in that order."""
        self.cache.batch_select_indices(rows)
        self.mask = self.mask[rows]
        self.positions = self.positions[rows]


def left_padded(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Token ids and mask, both [sequences, longest]; padding is on the left so that all rows end together."""
    longest = max(len(sequence) for sequence in sequences)
    ids = torch.tensor([[0] * (longest - len(sequence)) + list(sequence) for sequence in sequences])
    mask = torch.tensor([[0] * (longest - len(sequence)) + [1] * len(sequence) for sequence in sequences])
    return ids, mask


def positions_of(mask: Tensor) -> Tensor:
    """Position of every token from its mask, [rows, length]; padding gets 0, which no token attends to."""
    return (mask.cumsum(dim=-1) - 1).clamp(min=0)


def prefill(model: Any, sequences: Sequence[Sequence[int]], copies: Sequence[int]) -> tuple[Context, Tensor]:
    """Read each sequence once, then repeat what the model remembers `copies` times.

    Returns the context and the logits of the next token, both with sum(copies) rows.
    """
    ids, mask = left_padded(sequences)
    positions = positions_of(mask)
    context = Context(DynamicCache(config=model.config), mask, positions[:, -1:])
    reply = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=context.cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: Tensor = reply.logits[:, -1]
    if any(count != 1 for count in copies):
        rows = torch.repeat_interleave(torch.arange(len(sequences)), torch.tensor(list(copies)))
        context.keep(rows)
        logits = logits[rows]
    return context, logits


def extend(model: Any, context: Context, tokens: Tensor, running: Tensor) -> Tensor:
    """Append one token per row and return the logits of the next, [rows, vocab].

    `running` [rows] holds back the position of finished rows that still travel along: it could leave the
    model's range, and nobody reads those rows.
    """
    context.mask = torch.cat([context.mask, context.mask.new_ones(len(tokens), 1)], dim=-1)
    context.positions = context.positions + running[:, None].long()
    reply = model(
        input_ids=tokens[:, None],
        attention_mask=context.mask,
        position_ids=context.positions,
        past_key_values=context.cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: Tensor = reply.logits[:, -1]
    return logits
