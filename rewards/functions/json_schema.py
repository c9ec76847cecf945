"""1.0 where the completion's JSON is valid against a JSON Schema.

The JSON is all that follows the thinking (`</think>`), or else the last fenced block marked json in it. The schema is
`params.schema`, or each row's column `schema`: an object, or the text of one. `$ref` reaches only into the schema
itself: nothing is fetched. `format` (date, email, ...) is an annotation, as the standard has it, and is not enforced:
use `pattern`. A schema's `pattern` can take exponential time, so this runs in a worker with a time limit.

Range: 0.0 or 1.0.
Source: JSON Schema, by the library jsonschema; without a `$schema` it is read as draft 2020-12.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]
from jsonschema.validators import Draft202012Validator, validator_for  # type: ignore[import-untyped]
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable

from rewards.batch import Text
from rewards.contract import Example, PrepareError, short_repr
from rewards.functions.text import after_thinking, text_of

FENCED = re.compile(r"^[ \t]*```[ \t]*json[ \t]*\r?\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.IGNORECASE)
NOT_JSON = object()

PER_SAMPLE = True
_SCHEMA = {"schema": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}
SELF_TEST = (
    Example(completion='Here:\n```json\n{"name": "Ada"}\n```', params=_SCHEMA, score=1.0),
    Example(completion='{"name": 1}', params=_SCHEMA, score=0.0),
)


def prepare(*, schema: Mapping[str, Any] | str | bool | None = None) -> None:
    """Raises PrepareError for a schema that is not one."""
    try:
        if schema is not None:
            _validator(schema)
    except ValueError as error:
        raise PrepareError(str(error)) from error


def json_schema(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    schema: Mapping[str, Any] | str | bool | Sequence[Any] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """1.0 or 0.0; None where the column `schema` is null. Raises ValueError for an invalid schema, or for none."""
    if schema is None:
        raise ValueError("json_schema needs params.schema or a column `schema`")
    # The column is a list with a schema per row; one schema for all is an object, its text or a boolean.
    schemas = schema if isinstance(schema, (list, tuple)) else [schema] * len(completions)
    return [
        None if one is None else _score(text_of(completion), one)
        for completion, one in zip(completions, schemas, strict=True)
    ]


def _score(completion: str, schema: object) -> float:
    validator = _validator(schema)
    value = _json_of(after_thinking(completion))
    if value is NOT_JSON:
        return 0.0
    try:
        return float(validator.is_valid(value))
    except Unresolvable as error:
        raise ValueError(f"a $ref in the schema {short_repr(schema)} leads nowhere: {error}") from error
    except RecursionError:  # nested a thousand levels deep
        return 0.0


def _json_of(text: str) -> Any:
    """The value that is written in the text, or NOT_JSON."""
    whole = _parsed(text)
    if whole is not NOT_JSON:
        return whole
    blocks = FENCED.findall(text)
    return _parsed(blocks[-1]) if blocks else NOT_JSON


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return NOT_JSON


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")  # Python would read NaN and Infinity


def _validator(schema: object) -> Any:
    return _compiled(schema if isinstance(schema, str) else json.dumps(schema, sort_keys=True))


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Any:
    try:
        schema = json.loads(text)
        if not isinstance(schema, (dict, bool)):
            raise ValueError("a schema is an object or a boolean")
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
    except (ValueError, SchemaError) as error:
        reason = error.message if isinstance(error, SchemaError) else str(error)
        raise ValueError(f"not a JSON Schema: {short_repr(text)}: {reason}") from error
    return kind(schema, registry=REGISTRY)
