"""`POST /remote_rm` as vime and slime ask with `--rm-type remote_rm`: one sample, answered with a bare number.

`--rm-url http://host:port/remote_rm?as=dict` makes the answer an object for users of `--reward-key`: the total as
`score`, and every function's own score under its name.
"""

from collections.abc import Mapping
from typing import Any

from rewards.protocols import foreign
from rewards.protocols.common import TEXT_SCHEMA, Asked, Dialect, Serving, refuse, text_problem
from rewards.scoring import ScoreResult

PATH = "/remote_rm"
TOTAL = "score"
KEYS = ("prompt", "response", "label")
HOW = "the body's label is missing or null (--label-key of vime and slime)"


def parse(raw: Mapping[str, Any], serving: Serving) -> Asked:
    """Raises RequestError."""
    prompt, response = raw.get("prompt"), raw.get("response")
    if not isinstance(response, str):
        refuse(422, f"response must be a string, not {type(response).__name__}")
    if problem := text_problem(prompt):
        refuse(422, f"prompt {problem}")
    completion = foreign.without_end(response, serving.end_texts)  # slime decodes with special tokens by default
    return foreign.ask(serving, [prompt], [completion], [raw["label"]] if "label" in raw else None, HOW)


def render(result: ScoreResult, seconds: float, query: Mapping[str, str]) -> Any:
    """Raises RequestError for another `as` than dict and number."""
    wanted = query.get("as", "number")
    if wanted not in ("number", "dict"):
        refuse(422, f"?as={wanted[:40]!r}: expected dict or number")
    (reward,) = foreign.all_rewards(result)
    if wanted == "number":
        return reward
    if TOTAL in result.components and len(result.components) > 1:
        refuse(422, f"a function is named {TOTAL!r}, as the total is in this dialect: give it another name")
    return {**{name: column[0] for name, column in result.components.items()}, TOTAL: reward}


DIALECT = Dialect(
    name="vime",
    path=PATH,
    parse=parse,
    render=render,
    render_error=foreign.render_error,
    says="vime and slime (remote_rm): one sample. Other keys are ignored.",
    body={
        "type": "object",
        "required": ["prompt", "response"],
        "properties": {
            "prompt": TEXT_SCHEMA,
            "response": {"type": "string"},
            "label": {"description": "the gold answer, of any type"},
        },
    },
    reply={
        "anyOf": [
            {"type": "number"},
            {
                "type": "object",
                "required": [TOTAL],
                "properties": {TOTAL: {"type": "number"}},
                "additionalProperties": {"type": ["number", "null"]},
            },
        ]
    },
    error=foreign.ERROR_SCHEMA,
    query=[{"name": "as", "in": "query", "schema": {"enum": ["number", "dict"]}}],
)
