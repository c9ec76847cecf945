"""What the dialects of other systems have in common: one gold per sample, and rewards that must all be numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from rewards.batch import GOLD_COLUMNS, Batch
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
NATIVE = "use /v1/score"
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


def gold_columns(functions: Sequence[FunctionInfo]) -> tuple[str, ...]:
    """The columns that a sample's one gold answer fills. Raises RequestError where it cannot be meant for all of them.

    A single column that the functions need holds the gold whatever its name; of several, each must be named as golds
    are, and no function may need two.
    """
    for f in functions:
        for column in f.only:
            refuse(
                422, f"{f.name} chooses samples by the column {column!r}, which this dialect does not carry: {NATIVE}"
            )
    needed = {column: f.name for f in functions for column in f.required_columns}
    unclear = len(needed) > 1 and not set(needed) <= set(GOLD_COLUMNS)
    if unclear or any(len(f.required_columns) > 1 for f in functions):
        wants = ", ".join(f"{f.name} needs {column!r}" for f in functions for column in f.required_columns)
        refuse(422, f"this dialect carries one gold answer per sample and no other column, but {wants}: {NATIVE}")
    optional = (column for f in functions for column in f.optional_columns if column in GOLD_COLUMNS)
    return tuple(dict.fromkeys((*needed, *optional)))


def may_read_gold(functions: Sequence[FunctionInfo]) -> bool:
    """False where a gold would be looked up in vain: inline functions read the columns that they name, no others.

    A user's function may read it in ways that no signature shows, and the built-in `remote` sends it on.
    """
    return any(f.required_columns or not f.inline for f in functions)


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
        refuse(422, f"the post-process hook needs whole groups, which this dialect does not mark: {NATIVE}")
    if whole := [f.name for f in serving.functions if f.granularity == "group"]:
        refuse(422, f"{whole[0]} scores whole groups, which this dialect does not mark: {NATIVE}")
    columns = gold_columns(serving.functions)
    needs = next(((f.name, f.required_columns[0]) for f in serving.functions if f.required_columns), None)
    if needs is not None and golds is None and prompts:
        refuse(422, f"{needs[0]} needs the gold answer ({needs[1]!r}): {how_to_give_gold}")
    if needs is not None and golds is not None and None in golds:
        index = list(golds).index(None)
        refuse(422, f"the gold answer of sample {index} is null, and {needs[0]} needs it: {how_to_give_gold}", index)
    if golds is None and needs is not None:
        golds = []
    filled = {} if golds is None else dict.fromkeys(columns or (DEFAULT_GOLD_COLUMN,), golds)
    return Asked(Batch(prompts=prompts, completions=completions, columns=filled), serving.functions)


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
