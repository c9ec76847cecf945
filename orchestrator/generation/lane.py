"""Rows that share every pass of the model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orchestrator.generation import forward, padding, sampling
from orchestrator.generation.forward import Context
from orchestrator.generation.jobs import GrowingRow


class Lane:
    """Rows of similar length. `draw` turns logits into tokens, `advance` has the model turn tokens into logits."""

    logits: Tensor
    """[rows, vocab], of the next token; stale once it is drawn."""
    tokens: Tensor
    """[rows], drawn and not yet read by the model."""
    _seen: Tensor | None
    """[rows, vocab] bool, the tokens of each row; made when a repetition penalty first asks for it."""

    def __init__(self, rows: Sequence[GrowingRow], context: Context) -> None:
        self.rows, self.context = list(rows), context
        self._prepare()

    def draw(self) -> bool:
        """Draw the next token of every row; the rows that end with it leave. Returns whether any did.

        Raises FloatingPointError when the model yields NaN.
        """
        if self._seen is None and self._settings.repetition_penalty is not None:
            self._seen = self._marks()
        logits = sampling.processed_logits(self.logits, self._settings, self._seen)
        steps = np.array([len(row.token_ids) for row in self.rows], dtype=np.uint64)
        self.tokens, logprobs, table = sampling.draw(logits, self._settings, steps)
        if logprobs.isnan().any():
            raise FloatingPointError("the model's log-probs are NaN")
        for row, token, logprob in zip(self.rows, self.tokens.tolist(), logprobs.tolist(), strict=True):
            row.add(token, logprob)
        if self._num_top:
            self._add_top(table)
        if self._seen is not None:
            self._seen[torch.arange(len(self.rows)), self.tokens] = True
        return self._drop_ended()

    def advance(self, model: Any) -> None:
        """Have the model read the tokens drawn last."""
        self.logits = forward.extend(model, self.context, self.tokens)

    def may_join(self, *others: "Lane") -> bool:
        """Whether this lane keeps the bound on padding, together with others."""
        lengths = torch.cat([lane.context.lengths for lane in (self, *others)]) + 1
        return padding.may_share(len(lengths), int(lengths.max()), int(lengths.sum()))

    def join(self, other: "Lane") -> None:
        """Take over the rows of another lane, after both have drawn."""
        self.rows += other.rows
        self.context.join(other.context)
        self.tokens = torch.cat([self.tokens, other.tokens])
        self._prepare()

    def split(self) -> list["Lane"]:
        """The rows in lanes that keep the bound on padding, after a draw."""
        parts = []
        for places in padding.groups(self.context.lengths.tolist()):
            part = Lane([self.rows[place] for place in places], self.context.copied(torch.tensor(places)))
            part.tokens = self.tokens[places]
            parts.append(part)
        return parts

    def _prepare(self) -> None:
        """What follows from the rows."""
        keys = np.array([row.key for row in self.rows], dtype=np.uint64)
        self._settings = sampling.row_settings([row.job.sampling for row in self.rows], keys)
        self._num_top = max(row.job.num_top for row in self.rows)
        self._seen = None

    def _marks(self) -> Tensor:
        marks = torch.zeros(self.logits.shape, dtype=torch.bool)
        for place, row in enumerate(self.rows):
            marks[place, row.sequence()] = True
        return marks

    def _add_top(self, table: Tensor) -> None:
        values, ids = table.topk(min(self._num_top, table.shape[-1]), dim=-1)
        for row, row_ids, row_values in zip(self.rows, ids.tolist(), values.tolist(), strict=True):
            if row.job.num_top:
                row.top.append(list(zip(row_ids, row_values, strict=True))[: row.job.num_top])

    def _drop_ended(self) -> bool:
        ended = [row.ended for row in self.rows]
        if all(ended):
            self.rows = []
        elif any(ended):
            kept = self.context.drop(torch.tensor(ended))
            self.rows = [self.rows[place] for place in kept.tolist()]
            self.tokens, self._settings = self.tokens[kept], self._settings.select(kept)
            self._seen = None if self._seen is None else self._seen[kept]
        return any(ended)
