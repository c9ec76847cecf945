"""`POST /get_reward` as Align-Anything's remote reward models are asked: `prompts` and `responses` to `rewards`.

Their clients send no gold answers; their server looks them up by question in a data file, and so does ours (`--gold`).
Without that file `golden_responses` of the request count, which their server ignores.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rewards.protocols import foreign
from rewards.protocols.common import Asked, Dialect, RequestError, Serving, check_size, refuse
from rewards.scoring import ScoreResult
from rewards.serving.gold import NoGoldError

PATH = "/get_reward"
HOW = "start the server with --gold FILE, or send golden_responses"


def parse(raw: Mapping[str, Any], serving: Serving) -> Asked:
    """Raises RequestError. The client's faults are 400, as theirs are."""
    try:
        return _parse(raw, serving)
    except RequestError as error:
        raise RequestError(400 if error.status == 422 else error.status, error.failures) from None


def _parse(raw: Mapping[str, Any], serving: Serving) -> Asked:
    if "query" in raw:
        refuse(422, "the body has both 'responses' (Align-Anything) and 'query' (OpenRLHF): which of them is meant?")
    if missing := [name for name in ("prompts", "responses") if name not in raw]:
        refuse(
            422, f"{' and '.join(missing)} missing: 'prompts' and 'responses' are required, 'golden_responses' is not"
        )
    lists: dict[str, list[Any]] = {name: foreign.text_list(raw, name) for name in ("prompts", "responses")}
    golds = None if serving.golds else raw.get("golden_responses")
    if golds is not None:
        lists["golden_responses"] = foreign.text_list(raw, "golden_responses")
    foreign.same_length(lists)
    check_size(len(lists["prompts"]), serving.max_batch)
    if serving.golds and foreign.may_read_gold(serving.functions):
        golds = _look_up(lists["prompts"], serving)
    return foreign.ask(serving, lists["prompts"], lists["responses"], golds, HOW)


def _look_up(prompts: Sequence[str], serving: Serving) -> list[Any] | None:
    """A question that is not in the file fails where a function reads golds, for None would be scored as a gold."""
    assert serving.golds is not None  # noqa: S101  the caller has looked
    read = bool(foreign.gold_columns(serving.functions))
    golds: list[Any] = []
    for index, prompt in enumerate(prompts):
        if serving.given_up():
            refuse(504, "nobody waits for this request any more")
        try:
            golds.append(serving.golds.find(prompt).answer)
        except NoGoldError as error:
            if read:
                refuse(422, f"prompts[{index}]: {error}", index)
            golds.append(None)
    return golds


def render(result: ScoreResult, seconds: float, query: Mapping[str, str]) -> dict[str, Any]:
    return {"rewards": foreign.all_rewards(result)}


TEXTS = {"type": "array", "items": {"type": "string"}}

DIALECT = Dialect(
    name="align_anything",
    path=PATH,
    parse=parse,
    render=render,
    render_error=foreign.render_error,
    not_an_object=400,
    looks_up_gold=True,
    says="Align-Anything: prompts are bare questions. Other keys are ignored.",
    body={
        "type": "object",
        "required": ["prompts", "responses"],
        "properties": {
            "prompts": TEXTS,
            "responses": TEXTS,
            "golden_responses": {
                "anyOf": [TEXTS, {"type": "null"}],
                "description": "the gold answers; ignored where the server has its own (--gold)",
            },
        },
    },
    reply={
        "type": "object",
        "required": ["rewards"],
        "additionalProperties": False,
        "properties": {"rewards": {"type": "array", "items": {"type": "number"}}},
    },
    error=foreign.ERROR_SCHEMA,
)
