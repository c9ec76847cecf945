"""The native dialect, `POST /v1/score`: one list per column, one entry per sample."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from rewards.batch import Batch, batch_problem
from rewards.contract import Failure
from rewards.describe import FunctionInfo
from rewards.scoring import ScoreResult, input_problem
from rewards.targets import near

PATH = "/v1/score"
KEYS = ("prompts", "completions", "columns", "group_ids", "statuses", "functions")


class RequestError(Exception):
    """A request that is answered with `status` and these failures. 4xx: the client's fault."""

    def __init__(self, status: int, failures: Sequence[Failure]) -> None:
        super().__init__(failures[0].message)
        self.status, self.failures = status, tuple(failures)


def refuse(status: int, message: str) -> NoReturn:
    raise RequestError(status, [Failure(function=None, index=None, message=message, kind="input")])


@dataclass(frozen=True)
class ScoreRequest:
    """A request that has been found valid."""

    batch: Batch
    functions: tuple[FunctionInfo, ...]


def parse_request(body: bytes, known: Sequence[FunctionInfo], max_batch: int) -> ScoreRequest:
    """Raises RequestError: 400 for what is not JSON, 413 for too many samples, 422 for what it says."""
    raw = _parse_json(body)
    if not isinstance(raw, dict):
        refuse(422, f"the body must be a JSON object, not {type(raw).__name__}")
    for unknown in sorted(set(raw) - set(KEYS)):
        refuse(422, f"unknown key {unknown!r}{near(unknown, KEYS)}")
    batch = Batch(
        prompts=_texts(raw, "prompts"),
        completions=_texts(raw, "completions"),
        columns=_columns(raw.get("columns")),
        group_ids=_group_ids(raw.get("group_ids")),
        statuses=_optional_list(raw, "statuses"),
    )
    if problem := batch_problem(batch):
        refuse(422, problem)
    if len(batch) > max_batch:
        refuse(413, f"{len(batch)} samples, at most {max_batch} are accepted in one request (--max-batch)")
    functions = _functions(raw.get("functions"), known)
    for f in functions:
        if missing := input_problem(f.name, f.required_columns, f.granularity, batch):
            raise RequestError(422, [missing])
    return ScoreRequest(batch, functions)


def render_reply(result: ScoreResult, seconds: float) -> dict[str, Any]:
    return {**asdict(result), "seconds": seconds}


def render_error(failures: Sequence[Failure]) -> dict[str, Any]:
    """`error` is the failure to look at first: one that a longer time limit would not cure, where there is one."""
    first = min(failures, key=lambda failure: failure.kind == "timeout")
    return {"error": asdict(first), "errors": [asdict(failure) for failure in failures]}


def error_status(failures: Sequence[Failure]) -> int:
    """503: try again; 504: only time was lacking; 500: a function is wrong."""
    kinds = {failure.kind for failure in failures}
    if "unavailable" in kinds:
        return 503
    return 504 if kinds == {"timeout"} else 500


def _parse_json(body: bytes) -> Any:
    def not_json(literal: str) -> NoReturn:
        raise ValueError(f"{literal} is not JSON")

    try:
        return json.loads(body, parse_constant=not_json)
    except (ValueError, RecursionError) as error:
        refuse(400, f"the body is not valid JSON: {error}")


def _optional_list(raw: dict[str, Any], name: str) -> list[Any] | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, list):
        refuse(422, f"{name} must be a list, not {type(value).__name__}")
    return value


def _texts(raw: dict[str, Any], name: str) -> list[Any]:
    texts = _optional_list(raw, name)
    if texts is None:
        refuse(422, f"{name} is missing")
    for index, text in enumerate(texts):
        if not isinstance(text, str) and not (isinstance(text, list) and all(isinstance(m, dict) for m in text)):
            refuse(422, f"{name}[{index}] must be a string or a list of messages, not {type(text).__name__}")
    return texts


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


def _group_ids(group_ids: Any) -> list[str | int] | None:
    ids = _optional_list({"group_ids": group_ids}, "group_ids")
    for index, group in enumerate(ids or ()):
        if isinstance(group, bool) or not isinstance(group, (str, int)):
            refuse(422, f"group_ids[{index}] must be a string or an integer, not {group!r}")
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
