"""What the dialects of other systems have in common: one gold per sample, and rewards that must all be numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from rewards.batch import Batch
from rewards.calling.describe import FunctionInfo
from rewards.contract import Failure
from rewards.protocols.common import (
    FAILURE_SCHEMA,
    Asked,
    RequestError,
    Serving,
    check_size,
    error_status,
    first_to_look_at,
    listed,
    refuse,
)
from rewards.scoring import ScoreResult

DEFAULT_GOLD_COLUMN = "answer"
ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error", "errors"],
    "additionalProperties": False,
    "properties": {
        "error": {"type": "string", "minLength": 1},
        "errors": {"type": "array", "minItems": 1, "items": FAILURE_SCHEMA},
    },
}


def text_list(raw: Mapping[str, Any], name: str) -> list[str]:
    texts = raw.get(name)
    if not isinstance(texts, list):
        refuse(422, f"{name} must be a list of strings, not {type(texts).__name__}")
    if not set(map(type, texts)) <= {str}:
        index, odd = next((i, text) for i, text in enumerate(texts) if not isinstance(text, str))
        refuse(422, f"{name}[{index}] must be a string, not {type(odd).__name__}", index)
    return texts


def without_end(completion: str, end_texts: Sequence[str]) -> str:
    """The completion without special tokens at its end: TRL decodes without them, so functions do not expect them."""
    end = len(completion)
    while found := next((text for text in end_texts if completion.endswith(text, 0, end)), None):
        end -= len(found)  # one cut in the end: a long row of them takes linear time
    return completion[:end]


def padding(text: str, end_texts: Sequence[str]) -> list[int]:
    """Where each of the special tokens that the text begins with starts, and where the last one ends."""
    starts = [0]
    while found := next((token for token in end_texts if text.startswith(token, starts[-1])), None):
        starts.append(starts[-1] + len(found))
    return starts


def same_length(lists: Mapping[str, Sequence[Any]]) -> None:
    if len({len(each) for each in lists.values()}) > 1:
        counts = ", ".join(f"{name}: {len(each)}" for name, each in lists.items())
        refuse(422, f"all lists must have the same length, got {counts}")


def needed_column(functions: Sequence[FunctionInfo]) -> str | None:
    """The one column that the functions cannot do without. Raises RequestError where there is more than one."""
    needed = {column: f.name for f in functions for column in f.required_columns}
    if len(needed) > 1:
        wants = ", ".join(f"{name} needs {column!r}" for column, name in needed.items())
        refuse(422, f"this dialect carries one gold answer per sample and no other column, but {wants}: use /v1/score")
    return next(iter(needed), None)


def ask(
    serving: Serving,
    prompts: Sequence[Any],
    completions: Sequence[str],
    golds: Sequence[Any] | None,
    how_to_give_gold: str,
) -> Asked:
    """The request as a batch for every function of the server. Raises RequestError."""
    check_size(len(prompts), serving.max_batch)
    if serving.has_hook:
        refuse(422, "the post-process hook needs whole groups, which this dialect does not mark: use /v1/score")
    if whole := [f.name for f in serving.functions if f.granularity == "group"]:
        refuse(422, f"{whole[0]} scores whole groups, which this dialect does not mark: use /v1/score")
    column = needed_column(serving.functions)
    if golds is None and column is not None and prompts:
        name = next(f.name for f in serving.functions if column in f.required_columns)
        refuse(422, f"{name} needs the gold answer ({column!r}): {how_to_give_gold}")
    if golds is not None and column is not None and None in golds:
        name = next(f.name for f in serving.functions if column in f.required_columns)
        index = list(golds).index(None)
        refuse(422, f"the gold answer of sample {index} is null, and {name} needs it: {how_to_give_gold}", index)
    if golds is None and column is not None:
        golds = []
    columns = {} if golds is None else {column or DEFAULT_GOLD_COLUMN: golds}
    return Asked(Batch(prompts=prompts, completions=completions, columns=columns), serving.functions)


def all_rewards(result: ScoreResult) -> list[float]:
    """Every sample's reward. Raises RequestError where one has none: these dialects have no word for that."""
    if result.errors:
        raise RequestError(error_status(result.errors), result.errors)
    rewards = numbers(result.rewards)
    if rewards is None:
        index = result.rewards.index(None)
        message = f"sample {index} has no reward, which this dialect cannot express"
        raise RequestError(500, [Failure(function=None, index=index, message=message)])
    return rewards


def numbers(column: Sequence[float | None]) -> list[float] | None:
    """The column if every entry is a number, else None."""
    found = [value for value in column if value is not None]
    return found if len(found) == len(column) else None


def render_error(failures: Sequence[Failure]) -> dict[str, Any]:
    first = first_to_look_at(failures)
    known = first.index is None or f"{first.index}" in first.message
    return {"error": first.message if known else f"sample {first.index}: {first.message}", "errors": listed(failures)}
