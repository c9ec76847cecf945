"""Log-probs of given tokens: raw log-softmax at temperature 1, as vLLM's `prompt_logprobs`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from orchestrator.generation import padding
from orchestrator.generation.forward import left_padded, positions_of

# Largest table of logits held at once, in numbers (float32: 256 MB). One long sequence may exceed it.
LOGITS_BUDGET = 2**26


@dataclass(frozen=True)
class TokenScore:
    """One entry of a position's table. `rank` 1 is the likeliest token of the vocabulary."""

    token_id: int
    logprob: float
    rank: int


PromptScores = list[list[TokenScore] | None]


def prompt_scores(model: Any, sequences: Sequence[Sequence[int]], num_top: Sequence[int]) -> list[PromptScores]:
    """For every position its own token, then the `num_top` likeliest others; None at the first position.

    Raises FloatingPointError when a log-prob is NaN.
    """
    scores: dict[int, PromptScores] = {}
    vocab = model.get_input_embeddings().num_embeddings
    for group in padding.groups([len(sequence) for sequence in sequences], LOGITS_BUDGET // vocab):
        ids, mask = left_padded([sequences[index] for index in group])
        reply = model(input_ids=ids, attention_mask=mask, position_ids=positions_of(mask), use_cache=False)
        for row, index in enumerate(group):
            start = ids.shape[1] - len(sequences[index])
            scores[index] = _row_scores(reply.logits[row, start:-1], ids[row, start + 1 :], num_top[index])
    return [scores[index] for index in range(len(sequences))]


def _row_scores(logits: Tensor, targets: Tensor, num_top: int) -> PromptScores:
    table = logits.float().log_softmax(dim=-1)
    actual = table.gather(-1, targets[:, None])
    if actual.isnan().any():
        raise FloatingPointError("the model's log-probs are NaN")
    ranks = (table > actual).sum(dim=-1) + 1
    top = torch.topk(table, min(num_top, table.shape[-1]), dim=-1)
    scores: PromptScores = [None]
    for token, logprob, rank, ids, values in zip(
        targets.tolist(), actual[:, 0].tolist(), ranks.tolist(), top.indices.tolist(), top.values.tolist(), strict=True
    ):
        others = [
            TokenScore(i, v, place) for place, (i, v) in enumerate(zip(ids, values, strict=True), 1) if i != token
        ]
        scores.append([TokenScore(token, logprob, rank), *others])
    return scores
