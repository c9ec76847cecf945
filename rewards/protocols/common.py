"""What the dialects share: refusals, a request that was found valid, and JSON held against limits before it is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isinf
from typing import Any, NoReturn

from rewards.batch import Batch
from rewards.calling.describe import FunctionInfo
from rewards.contract import Failure
from rewards.json_codec import decode
from rewards.scoring import ScoreResult
from rewards.serving.gold import GoldSet

DEEPEST = 64
"""Lists and objects inside each other. Below what json can write again from any depth of our own stack."""

END_TEXTS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|begin_of_text|>",
    "<|finetune_right_pad_id|>",
    "<end_of_turn>",
    "<eos>",
    "<bos>",
    "<pad>",
    "<s>",
    "</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
)
"""Special tokens of common models that clients leave at the ends of a text: padding, begin and end of a sequence."""


class RequestError(Exception):
    """A request that is answered with `status` and these failures. 4xx: the client's fault."""

    def __init__(self, status: int, failures: Sequence[Failure]) -> None:
        super().__init__(failures[0].message)
        self.status, self.failures = status, tuple(failures)


def refuse(status: int, message: str, index: int | None = None) -> NoReturn:
    raise RequestError(status, [Failure(function=None, index=index, message=message, kind="input")])


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What this server has to offer, which requests are held against."""

    functions: tuple[FunctionInfo, ...]
    max_batch: int
    has_hook: bool = False
    golds: GoldSet | None = None
    end_texts: tuple[str, ...] = END_TEXTS
    given_up: Callable[[], bool] = lambda: False
    """Whether the request is over before its answer: a thread that still reads it stops then."""


@dataclass(frozen=True)
class Asked:
    """A request that has been found valid."""

    batch: Batch
    functions: tuple[FunctionInfo, ...]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One way to ask for rewards over HTTP."""

    name: str
    path: str
    parse: Callable[[Mapping[str, Any], Serving], Asked]
    """From the body's object. Raises RequestError."""
    render: Callable[[ScoreResult, float, Mapping[str, str]], Any]
    """The reply, from the scores, the seconds that they took, and the query string. Raises RequestError."""
    render_error: Callable[[Sequence[Failure]], dict[str, Any]]
    not_an_object: int = 422
    """Status for JSON that is no object."""
    looks_up_gold: bool = False
    says: str
    """For `/openapi.json`, as are the schemas."""
    body: Mapping[str, Any]
    reply: Mapping[str, Any]
    error: Mapping[str, Any]
    query: Sequence[Mapping[str, Any]] = ()


def parse_object(body: bytes, not_an_object: int) -> dict[str, Any]:
    """Raises RequestError: 400 for what is not JSON, or nested too deeply."""
    try:
        raw = decode(body)
    except ValueError as error:
        refuse(400, f"the body is not valid JSON: {error}")
    if not isinstance(raw, dict):
        refuse(not_an_object, f"the body must be a JSON object, not {type(raw).__name__}")
    if problem := _unusable(raw, DEEPEST):
        refuse(400, f"the body is not valid JSON: {problem}")
    return raw


def error_status(failures: Sequence[Failure]) -> int:
    """503: try again; 504: only time was lacking; 500: a function is wrong."""
    kinds = {failure.kind for failure in failures}
    if "unavailable" in kinds:
        return 503
    return 504 if kinds == {"timeout"} else 500


def first_to_look_at(failures: Sequence[Failure]) -> Failure:
    """One that a longer time limit would not cure, where there is one."""
    return min(failures, key=lambda failure: failure.kind == "timeout")


def listed(failures: Sequence[Failure]) -> list[dict[str, Any]]:
    return [asdict(failure) for failure in failures]


def text_problem(text: Any) -> str | None:
    """What makes it neither a text nor a list of chat messages, or None."""
    if isinstance(text, str):
        return None
    if not isinstance(text, list) or not all(isinstance(message, dict) for message in text):
        return f"must be a string or a list of messages, not {type(text).__name__}"
    for message in text:
        if not isinstance(content := message.get("content"), (str, list, type(None))):
            return f"has a message whose content is a {type(content).__name__}, not a string or a list of parts"
    return None


def check_size(count: int, limit: int) -> None:
    if count > limit:
        refuse(413, f"{count} samples, at most {limit} are accepted in one request (--max-batch)")


def _unusable(value: dict[str, Any] | list[Any], depth: int) -> str | None:
    """Nesting that is too deep, or a number that no float can hold. Long lists of texts cost one pass in C."""
    if depth == 0:
        return f"lists and objects are nested more than {DEEPEST} deep"
    entries: Any = value.values() if isinstance(value, dict) else value
    if set(map(type, entries)) <= {str, int, bool, type(None)}:
        return None
    for entry in entries:
        if isinstance(entry, float):
            if isinf(entry):
                return "a number is beyond the range of a float"
        elif isinstance(entry, (dict, list)) and (problem := _unusable(entry, depth - 1)):
            return problem
    return None


TEXT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {"type": "object", "properties": {"content": {"type": ["string", "array", "null"]}}},
        },
    ],
    "description": "plain text, or a list of chat messages",
}
FAILURE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["function", "index", "message", "value", "kind"],
    "properties": {
        "function": {"type": ["string", "null"]},
        "index": {"type": ["integer", "null"], "minimum": 0, "description": "the sample's position in the request"},
        "message": {"type": "string", "minLength": 1},
        "value": {"type": ["string", "null"], "description": "what the function returned, where that is the problem"},
        "kind": {"enum": ["contract", "input", "exception", "timeout", "crash", "unavailable"]},
        "exception": {"type": ["string", "null"], "description": "the type of the exception that the function raised"},
    },
    "additionalProperties": False,
}
