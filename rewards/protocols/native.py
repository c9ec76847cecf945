"""The native dialect, `POST /v1/score`: one list per column, one entry per sample."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from rewards.batch import STATUSES, Batch, batch_problem
from rewards.calling.describe import FunctionInfo
from rewards.calling.targets import near
from rewards.contract import Failure
from rewards.functions.text import text_of
from rewards.protocols.common import (
    FAILURE_SCHEMA,
    TEXT_SCHEMA,
    Asked,
    Dialect,
    RequestError,
    Serving,
    check_size,
    first_to_look_at,
    listed,
    refuse,
    text_problem,
)
from rewards.scoring import ScoreResult, input_problem

PATH = "/v1/score"
KEYS = ("prompts", "completions", "columns", "group_ids", "statuses", "evaluation", "functions")
RESULT_KEYS = tuple(field.name for field in fields(ScoreResult))


def parse(raw: Mapping[str, Any], serving: Serving) -> Asked:
    """Raises RequestError: 413 for too many samples, 422 for what the request says."""
    for unknown in sorted(set(raw) - set(KEYS)):
        refuse(422, f"unknown key {unknown!r}{near(unknown, KEYS)}")
    batch = Batch(
        prompts=_texts(raw, "prompts"),
        completions=_texts(raw, "completions"),
        columns=_columns(raw.get("columns")),
        group_ids=_group_ids(raw),
        statuses=_optional_list(raw, "statuses"),
        evaluation=_flag(raw, "evaluation"),
    )
    if problem := batch_problem(batch):
        refuse(422, problem)
    check_size(len(batch), serving.max_batch)
    functions = _functions(raw.get("functions"), serving.functions)
    for f in functions:
        if missing := input_problem(f.name, f.required_columns, f.granularity, batch):
            raise RequestError(422, [missing])
    return Asked(batch, functions)


def render(result: ScoreResult, seconds: float, query: Mapping[str, str]) -> dict[str, Any]:
    return {**{key: getattr(result, key) for key in RESULT_KEYS}, "errors": listed(result.errors), "seconds": seconds}


def render_error(failures: Sequence[Failure]) -> dict[str, Any]:
    """`error` is the failure to look at first."""
    everything = listed(failures)
    return {"error": everything[list(failures).index(first_to_look_at(failures))], "errors": everything}


def _optional_list(raw: Mapping[str, Any], name: str) -> list[Any] | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, list):
        refuse(422, f"{name} must be a list, not {type(value).__name__}")
    return value


def _flag(raw: Mapping[str, Any], name: str) -> bool:
    value = raw.get(name, False)
    if not isinstance(value, bool):
        refuse(422, f"{name} must be true or false, not {type(value).__name__}")
    return value


def _texts(raw: Mapping[str, Any], name: str) -> list[Any]:
    texts = _optional_list(raw, name)
    if texts is None:
        refuse(422, f"{name} is missing")
    if set(map(type, texts)) <= {str}:  # in C; nearly every request is this one
        return texts
    for index, text in enumerate(texts):
        if problem := text_problem(text):
            refuse(422, f"{name}[{index}] {problem}", index)
        if name == "completions":
            _written(text, index)
    return texts


def _written(completion: Any, index: int) -> None:
    """Messages of which the model wrote none are the client's fault, not that of the function that cannot read them."""
    try:
        text_of(completion)
    except ValueError as error:
        refuse(422, f"completions[{index}]: {error}", index)


def _columns(columns: Any) -> dict[str, list[Any]]:
    if columns is None:
        return {}
    if not isinstance(columns, dict):
        refuse(422, f"columns must be an object of lists, not {type(columns).__name__}")
    for name, column in columns.items():
        if name in ("prompts", "completions"):
            refuse(422, f"columns.{name}: this name is taken, {name} stand beside the columns")
        if not isinstance(column, list):
            refuse(422, f"columns.{name} must be a list, not {type(column).__name__}")
    return columns


def _group_ids(raw: Mapping[str, Any]) -> list[str | int] | None:
    ids = _optional_list(raw, "group_ids")
    for index, group in enumerate(ids or ()):
        if isinstance(group, bool) or not isinstance(group, (str, int)):
            refuse(422, f"group_ids[{index}] must be a string or an integer, not {group!r}", index)
    return ids


def _functions(names: Any, known: Sequence[FunctionInfo]) -> tuple[FunctionInfo, ...]:
    if names is None:
        return tuple(known)
    if not isinstance(names, list) or not names:
        refuse(422, "functions must be a list of names, or left out for all")
    by_name = {f.name: f for f in known}
    for name in names:
        if not isinstance(name, str) or name not in by_name:
            refuse(422, f"no function {name!r} on this server{near(str(name), by_name)}")
    return tuple(f for f in known if f.name in names)


SCORES = {"type": "array", "items": {"type": ["number", "null"]}}

DIALECT = Dialect(
    name="native",
    path=PATH,
    parse=parse,
    render=render,
    render_error=render_error,
    says="Scores a batch: every list has one entry per sample. Unknown keys are refused.",
    body={
        "type": "object",
        "required": ["prompts", "completions"],
        "additionalProperties": False,
        "properties": {
            "prompts": {"type": "array", "items": TEXT_SCHEMA},
            "completions": {"type": "array", "items": TEXT_SCHEMA},
            "columns": {"type": ["object", "null"], "additionalProperties": {"type": "array"}},
            "group_ids": {"type": ["array", "null"], "items": {"type": ["string", "integer"]}},
            "statuses": {"type": ["array", "null"], "items": {"enum": list(STATUSES)}},
            "evaluation": {"type": "boolean", "description": "held-out rows: functions count by their eval_key"},
            "functions": {"type": ["array", "null"], "minItems": 1, "items": {"type": "string"}},
        },
    },
    reply={
        "type": "object",
        "required": ["components", "rewards", "errors", "logs", "aborted", "seconds"],
        "properties": {
            "components": {"type": "object", "additionalProperties": SCORES},
            "rewards": {**SCORES, "description": "weighted totals; null: aborted, failed, or masked after an error"},
            "errors": {"type": "array", "items": FAILURE_SCHEMA},
            "logs": {"type": "object", "additionalProperties": {"type": "array"}},
            "aborted": {"type": "array", "items": {"type": "integer"}},
            "failed": {"type": "array", "items": {"type": "integer"}},
            "raw": {"anyOf": [SCORES, {"type": "null"}], "description": "totals before the post-process hook"},
            "seconds": {"type": "number", "minimum": 0},
        },
    },
    error={
        "type": "object",
        "required": ["error", "errors"],
        "additionalProperties": False,
        "properties": {"error": FAILURE_SCHEMA, "errors": {"type": "array", "minItems": 1, "items": FAILURE_SCHEMA}},
    },
)
