"""A JSON Schema of recipes, for editors: made from orchestrator/schema.py and the installed TRL's config classes.

Keys that the checks refuse are refused here too, where a file says enough; the rules of `orchestrate check` see more.
"""

import ast
import dataclasses
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from orchestrator import schema
from orchestrator.fields.docs import ClassDoc, schema_docs
from orchestrator.fields.json_types import Schema, opened, type_of
from orchestrator.fields.source import FieldFact, SourceUnreadableError
from orchestrator.fields.trainer import TRAINER_KINDS, trainer_fields

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_DEFAULTS: Schema = {
    "description": "Hydra's defaults list: the group files that this one is merged with.",
    "type": "array",
    "items": {"type": ["string", "object"], "minProperties": 1, "maxProperties": 1},
}


class NoSchemaError(Exception):
    """There is no such part, or a file that decides the schema cannot be read."""


def recipe_schema(folders: Sequence[Path]) -> Schema:
    """Of a whole recipe: conf/config.yaml, an experiment, a file with `# @package _global_`. Raises NoSchemaError.

    `folders` hold the groups: a recipe that chooses an option of `trainer` is held to the arguments of its kind.
    """
    root = _class(schema_docs()["RunConfig"])
    hydra = {"description": "Hydra's own settings.", "type": "object"}
    root["properties"] |= {"defaults": _DEFAULTS, "hydra": hydra}
    kinds = _trainer_kinds(folders)
    by_choice = [_args_where(_chooses(option), f"Args_{kind}") for option, kind in kinds.items()]
    unchosen = {"not": {"anyOf": [_chooses(option) for option in kinds]}}
    return _document(root | {"allOf": [*by_choice, _args_where(unchosen, "AnyArgs")]})


def group_schema(group: str) -> Schema:
    """Of one file of a group. Raises NoSchemaError."""
    parts = _parts()
    if group not in parts:
        near = get_close_matches(group, parts, n=1)
        raise NoSchemaError(f"a recipe has no part {group}; did you mean {near[0] if near else ', '.join(parts)}?")
    body = _class(parts[group])
    body["properties"] |= {"defaults": _DEFAULTS}
    if group == "trainer":
        body["allOf"].append({"if": {"required": ["kind"]}, "else": _with_args("AnyArgs")})
    return _document(body)


def _trainer_kinds(folders: Sequence[Path]) -> dict[str, str]:
    """Option of the trainer group -> its kind. As for Hydra, the first folder that has an option decides it."""
    kinds: dict[str, str] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("trainer/*.yaml"))):
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise NoSchemaError(f"{path} cannot be read: {error}") from error
        if isinstance(content, dict) and content.get("kind") in TRAINER_KINDS:
            kinds.setdefault(path.stem, content["kind"])
    return kinds


def _parts() -> dict[str, ClassDoc]:
    docs = schema_docs()
    return {name: docs[f.annotation] for name, f in docs["RunConfig"].fields.items() if f.annotation in docs}


def _document(body: Schema) -> Schema:
    definitions = {name: _class(doc) for name, doc in schema_docs().items() if name != "RunConfig"}
    definitions |= {f"Args_{kind}": _args(kind) for kind in TRAINER_KINDS}
    return {"$schema": DIALECT, **body, "$defs": definitions | {"AnyArgs": _any_args()}}


def _class(doc: ClassDoc) -> Schema:
    cls = getattr(schema, doc.name)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    body = {"description": doc.meaning, **_mapping({name: _field(fields[name], doc) for name in doc.fields})}
    return body | {"allOf": _args_by_kind()} if doc.name == "TrainerConfig" else body


def _mapping(properties: Schema) -> Schema:
    """With these keys and no others."""
    return opened({"type": ["object"], "properties": properties, "additionalProperties": False})


def _field(field: "dataclasses.Field[Any]", doc: ClassDoc) -> Schema:
    said, choices = doc.fields[field.name], field.metadata.get("choices") or ()
    types = type_of(said.annotation)
    if said.annotation == "str" and not choices:
        types["type"].append("number")  # a number is read as text: model.name=7 is the name "7"
    body = opened(types, choices)
    if said.meaning:
        body["description"] = said.meaning
    default = field.default_factory() if callable(field.default_factory) else field.default
    return body if dataclasses.is_dataclass(default) else body | {"default": default}


def _args_by_kind() -> list[Schema]:
    """Inside the trainer: the kind that is stated there decides what args may name."""
    is_kind = ({"properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in TRAINER_KINDS)
    return [{"if": it, "then": _with_args(f"Args_{kind}")} for it, kind in zip(is_kind, TRAINER_KINDS, strict=True)]


def _args_where(condition: Schema, name: str) -> Schema:
    """At the root, where the trainer states no kind itself."""
    unstated = {"properties": {"trainer": {"not": {"required": ["kind"]}}}}
    return {"if": {"allOf": [condition, unstated]}, "then": {"properties": {"trainer": _with_args(name)}}}


def _chooses(option: str) -> Schema:
    """The defaults list chooses this option of the trainer group."""
    entry = {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": "^(override )?/?trainer$"},
        "additionalProperties": {"const": option},
    }
    return {"properties": {"defaults": {"contains": entry}}, "required": ["defaults"]}


def _with_args(name: str) -> Schema:
    return {"properties": {"args": {"$ref": f"#/$defs/{name}"}}}


def _args(kind: str) -> Schema:
    try:
        return _mapping({name: _argument(fact) for name, fact in trainer_fields(kind).items()})
    except SourceUnreadableError as error:
        return opened({"type": ["object"], "description": f"Not checked: {error}"})


def _any_args() -> Schema:
    """Where nothing says the kind of trainer: every name that the known kinds have, with each of its types."""
    found: dict[str, list[Schema]] = {}
    for kind in TRAINER_KINDS:
        for name, body in _args(kind).get("properties", {}).items():
            types = {key: value for key, value in body.items() if key != "default"}
            if types not in found.setdefault(name, []):
                found[name].append(types)
    return _mapping({name: bodies[0] if len(bodies) == 1 else {"anyOf": bodies} for name, bodies in found.items()})


def _argument(fact: FieldFact) -> Schema:
    body = opened(type_of(fact.annotation), fact.choices)
    try:
        return body | {"default": ast.literal_eval(fact.default)}
    except (ValueError, SyntaxError):
        return body
