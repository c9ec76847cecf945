"""Check what a generation server answered, and take from it what is needed. Every function raises ValueError."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A completion that ended in any other way ("abort", "error") is not one to train on.
ENDINGS = ("stop", "length")


@dataclass(frozen=True)
class Completion:
    """One completion. `logprobs` has the log-prob of each token under the distribution it was drawn from."""

    token_ids: list[int]
    """The end-of-sequence token is included where the model produced it."""
    logprobs: list[float]
    finish_reason: str
    """"stop" or "length"."""
    text: str = ""
    stop_reason: int | str | None = None
    """The stop token id; None for the tokenizer's end-of-sequence token."""


def choices_of(reply: Any, count: int) -> list[Mapping[str, Any]]:
    """The choices of a completions reply, in order of their index: prompt-major."""
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ValueError("the answer has no list of choices")
    if len(choices) != count:
        raise ValueError(f"asked for {count} completions, got {len(choices)}")
    if [choice.get("index") for choice in choices] != list(range(count)):
        raise ValueError("the choices are not numbered 0, 1, 2, ...")
    return choices


def completion_of(choice: Mapping[str, Any], prompt: Sequence[int], max_tokens: int) -> Completion:
    """One choice, checked: the prompt is ours, every token has one finite log-prob, and it ended by itself.

    vLLM shortens max_tokens to its context and says nothing: a completion that was cut there is no truncated one.
    """
    where = f"choice {choice.get('index')}"
    if choice.get("finish_reason") not in ENDINGS:
        raise ValueError(f"{where} ended with {choice.get('finish_reason')!r}, wanted one of {', '.join(ENDINGS)}")
    if choice.get("prompt_token_ids") != list(prompt):
        raise ValueError(f"{where} belongs to another prompt than the one sent")
    token_ids, table = choice.get("token_ids"), choice.get("logprobs")
    if not isinstance(token_ids, list) or not isinstance(table, dict):
        raise ValueError(f"{where} lacks token_ids or logprobs")
    if table.get("tokens") != [f"token_id:{token}" for token in token_ids]:
        raise ValueError(f"{where}: its log-probs belong to other tokens than token_ids")
    logprobs = table.get("token_logprobs")
    if not isinstance(logprobs, list) or len(logprobs) != len(token_ids):
        raise ValueError(f"{where} has {len(token_ids)} tokens but not as many log-probs")
    if choice["finish_reason"] == "length" and len(token_ids) < max_tokens:
        raise ValueError(
            f"{where} was cut at {len(token_ids)} of {max_tokens} tokens: with its prompt of {len(prompt)} it does not "
            "fit the server's context"
        )
    return Completion(
        token_ids=token_ids,
        logprobs=[_finite(value, where) for value in logprobs],
        finish_reason=choice["finish_reason"],
        text=str(choice.get("text") or ""),
        stop_reason=choice.get("stop_reason"),
    )


def sequence_scores(choice: Mapping[str, Any], sequence: Sequence[int]) -> list[float]:
    """Log-probs of the tokens of a sequence after the first, len(sequence) - 1 of them."""
    where = f"choice {choice.get('index')}"
    positions = choice.get("prompt_logprobs")
    if not isinstance(positions, list) or len(positions) != len(sequence):
        raise ValueError(f"{where}: prompt_logprobs do not cover the {len(sequence)} tokens of the sequence")
    scores = []
    for place in range(1, len(sequence)):
        entry = (positions[place] or {}).get(str(sequence[place]))
        if entry is None:
            raise ValueError(f"{where}: no log-prob for token {sequence[place]} at position {place}")
        scores.append(_finite(entry["logprob"], where))
    return scores


def next_token_score(choice: Mapping[str, Any], token: int) -> float:
    """Log-prob of `token` as the first of a choice, whichever was drawn."""
    where = f"choice {choice.get('index')}"
    table = (choice.get("logprobs") or {}).get("top_logprobs") or [{}]
    found = (table[0] or {}).get(f"token_id:{token}")
    if found is None:
        raise ValueError(f"{where}: no log-prob for token {token}")
    return _finite(found, where)


def _finite(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{where}: log-prob {value!r} is not a finite number")
    return float(value)
