"""`POST /get_reward` as OpenRLHF asks reward models: `query`, `prompts`, `labels` to `rewards`, `scores`, `extra_logs`.

A query is the decoded sequence: prompt, completion and special tokens. The completion is what follows the prompt, up
to the special tokens at its end, so that functions see what they would see from TRL. Every list of the reply has one
entry per query, as their own server's has; it is up to their trainer to make tensors of them.
"""

from collections.abc import Mapping
from typing import Any

from rewards.protocols import foreign
from rewards.protocols.common import Asked, Dialect, Serving, refuse
from rewards.scoring import ScoreResult

PATH = "/get_reward"
HOW = "send labels, by naming the data's column in the trainer (--label_key, in newer versions --data.label_key)"
NO_PROMPTS = "prompts is missing: without it nobody can tell where the completion begins (OpenRLHF sends it since 0.6)"


def parse(raw: Mapping[str, Any], serving: Serving) -> Asked:
    """Raises RequestError."""
    if "prompts" not in raw:
        refuse(422, NO_PROMPTS)
    queries, prompts = foreign.text_list(raw, "query"), foreign.text_list(raw, "prompts")
    labels = raw.get("labels")
    if labels is not None and not isinstance(labels, list):
        refuse(422, f"labels must be a list, not {type(labels).__name__}")
    foreign.same_length({"query": queries, "prompts": prompts} | ({} if labels is None else {"labels": labels}))
    completions = [
        completion_of(index, query, prompt, serving.end_texts)
        for index, (query, prompt) in enumerate(zip(queries, prompts, strict=True))
    ]
    return foreign.ask(serving, prompts, completions, labels, HOW)


def completion_of(index: int, query: str, prompt: str, end_texts: tuple[str, ...]) -> str:
    """What follows the prompt. Raises RequestError for a query that does not begin with it, padding apart."""
    begin = 0
    if not query.startswith(prompt):  # older versions send the padding on the left; a prompt may begin with some too
        paddings = foreign.padding(query, end_texts)
        begin = paddings[-min(len(paddings), len(foreign.padding(prompt, end_texts)))]
        if not query.startswith(prompt, begin):
            refuse(422, f"query[{index}] does not begin with prompts[{index}], so its completion is not known", index)
    return foreign.without_end(query[begin + len(prompt) :], end_texts)


def render(result: ScoreResult, seconds: float, query: Mapping[str, str]) -> dict[str, Any]:
    """`scores` are the totals before a post-process hook: their dynamic filter compares those with its range.

    Logs are the components and their numeric extras. One that some sample lacks is left out: their trainer makes a
    tensor of each.
    """
    rewards = foreign.all_rewards(result)
    scores = rewards if result.raw is None else foreign.numbers(result.raw)
    logs = {name: foreign.numbers(column) for name, column in {**result.components, **result.logs}.items()}
    return {
        "rewards": rewards,
        "scores": rewards if scores is None else scores,
        "extra_logs": {name: column for name, column in logs.items() if column is not None and _numeric(column)},
    }


def _numeric(column: list[float]) -> bool:
    return all(isinstance(value, (int, float)) for value in column)


TEXTS = {"type": "array", "items": {"type": "string"}}
NUMBERS = {"type": "array", "items": {"type": "number"}}

DIALECT = Dialect(
    name="openrlhf",
    path=PATH,
    parse=parse,
    render=render,
    render_error=foreign.render_error,
    says="OpenRLHF: each query begins with its prompt. Other keys are ignored.",
    body={
        "type": "object",
        "required": ["query", "prompts"],
        "properties": {
            "query": {**TEXTS, "description": "prompt, completion and special tokens"},
            "prompts": TEXTS,
            "labels": {"type": ["array", "null"], "description": "the gold answers"},
        },
    },
    reply={
        "type": "object",
        "required": ["rewards", "scores", "extra_logs"],
        "additionalProperties": False,
        "properties": {
            "rewards": NUMBERS,
            "scores": NUMBERS,
            "extra_logs": {"type": "object", "additionalProperties": NUMBERS},
        },
    },
    error=foreign.ERROR_SCHEMA,
)
