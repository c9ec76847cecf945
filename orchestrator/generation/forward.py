"""Forward passes over rows of different lengths, with a KV cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from orchestrator.generation.cache import RowCache, survivors


@dataclass
class Context:
    """Everything the model remembers of some rows."""

    cache: RowCache
    lengths: Tensor
    """[rows], the tokens of each row that the cache holds; they end in its last column."""

    def copied(self, rows: Tensor) -> "Context":
        """A context of its own for the given rows; indices may repeat."""
        lengths = self.lengths[rows]
        return Context(self.cache.copied(rows, int(lengths.max())), lengths)

    def join(self, other: "Context") -> None:
        """Append the rows of another context."""
        self.cache.join(other.cache)
        self.lengths = torch.cat([self.lengths, other.lengths])

    def drop(self, leaving: Tensor) -> Tensor:
        """Drop rows ([rows] bool, not all of them); returns the old indices of those that stay, in their new order."""
        kept = survivors(~leaving)
        self.lengths = self.lengths[kept]
        self.cache.keep(kept, int(self.lengths.max()))
        return kept


def left_padded(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Token ids and mask, both [sequences, longest]; padding is on the left so that all rows end together."""
    longest = max(len(sequence) for sequence in sequences)
    ids = torch.tensor([[0] * (longest - len(sequence)) + list(sequence) for sequence in sequences])
    mask = torch.tensor([[0] * (longest - len(sequence)) + [1] * len(sequence) for sequence in sequences])
    return ids, mask


def positions_of(mask: Tensor) -> Tensor:
    """Position of every token from its mask, [rows, length]; padding gets 0, which no token attends to."""
    return (mask.cumsum(dim=-1) - 1).clamp(min=0)


def prefill(model: Any, sequences: Sequence[Sequence[int]]) -> tuple[Context, Tensor]:
    """Read sequences; returns the context and the logits of the next token, [sequences, vocab].

    Raises ValueError for a model whose memory is not a KV cache of all its tokens.
    """
    ids, mask = left_padded(sequences)
    context = Context(RowCache(), mask.sum(dim=-1))
    logits = _logits(model, ids, mask, positions_of(mask), context.cache)
    if {layer.get_seq_length() for layer in context.cache.layers} != {ids.shape[1]}:
        raise ValueError(f"{type(model).__name__} does not keep its tokens in a KV cache")
    return context, logits


def extend(model: Any, context: Context, tokens: Tensor) -> Tensor:
    """Append one token per row and return the logits of the next, [rows, vocab]."""
    positions = context.lengths[:, None]
    context.lengths = context.lengths + 1
    columns = context.cache.get_seq_length() + 1
    mask = (torch.arange(columns) >= columns - context.lengths[:, None]).long()
    return _logits(model, tokens[:, None], mask, positions, context.cache)


def _logits(model: Any, ids: Tensor, mask: Tensor, positions: Tensor, cache: RowCache) -> Tensor:
    reply = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: Tensor = reply.logits[:, -1]
    return logits
