"""The JSON Schema of an annotation: what orchestrator/fields/types.py accepts, for editors."""

import ast
from collections.abc import Sequence
from typing import Any

from orchestrator.fields.docs import schema_docs
from orchestrator.fields.types import readable

Schema = dict[str, Any]

STANDS_FOR_A_VALUE = {
    "pattern": r"\$\{.+\}|^\?\?\?$",
    "patternErrorMessage": "This is not of the type that is asked for, nor is it ${...} or ???.",
}
"""Text that may stand where a value of any type is asked for. `pattern` concerns strings only, so it goes beside a
type; editors show the message, validators ignore it."""

_PLAIN = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array"}


def type_of(annotation: str) -> Schema:
    """What orchestrator/fields/types.py accepts for the annotation; {} = anything."""
    return _of(ast.parse(readable(annotation), mode="eval").body)


def _of(node: ast.expr) -> Schema:
    match node:
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _either([_of(left), _of(right)])
        case ast.Constant(value=None):
            return {"type": ["null"]}
        case ast.Constant(value=str(forward)):
            return type_of(forward)
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return _either([_of(inner), {"type": ["null"]}])
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=options)):
            return _either([_of(option) for option in options])
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            return {"type": ["array"], "items": opened(_of(inner))}
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, inner])):
            return {"type": ["object"], "additionalProperties": opened(_of(inner))}
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Constant(value=word)):
            return {"const": word}
        case ast.Name(id=name) if name in _PLAIN:
            return {"type": [_PLAIN[name]]}
        case ast.Name(id=name) if name in schema_docs():
            return {"$ref": f"#/$defs/{name}"}
        case ast.Name(id=name) if name != "Any":
            return {"type": ["string", "object"]}  # a class of the trainer's: its name or its fields
    return {}


def _either(options: Sequence[Schema]) -> Schema:
    if {} in options:
        return {}
    keys = [key for option in options for key in option if key != "type"]
    if len(keys) != len(set(keys)) or not all("type" in option for option in options):
        return {"anyOf": list(options)}
    types = dict.fromkeys(name for option in options for name in option["type"])
    return {key: value for option in options for key, value in option.items()} | {"type": list(types)}


def opened(body: Schema, choices: Sequence[Any] = ()) -> Schema:
    """The same, one of `choices` where there are some, or text that stands for a value."""
    text = {"type": "string", **STANDS_FOR_A_VALUE}
    if choices:
        others = [name for name in body.get("type", ()) if name != "string"]
        words: list[Schema] = [{"enum": list(choices)}, text]
        return {"anyOf": [*words, {**body, "type": others}] if others else words}
    if "anyOf" in body or "const" in body:
        return {"anyOf": [*body.get("anyOf", [body]), text]}
    if "type" not in body or "string" in body["type"]:
        return body
    return body | {"type": [*body["type"], "string"], **STANDS_FOR_A_VALUE}
