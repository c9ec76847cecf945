"""A place that says a value, as it may be shown: what looks like a secret is left out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from orchestrator.compose import Layer
from orchestrator.redact import HIDDEN, is_secret, shown_override, without_recognised
from orchestrator.why.layers import Marked, Statement

_ENV_DEFAULT = re.compile(r"(\$\{oc\.env:\s*([^,}]+)),[^}]*\}")

Kind = Literal["file", "override", "schema", "trainer", "run", "environment", "hydra", "nobody"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Who says a value."""

    kind: Kind
    text: str = ""
    """The override as typed, or whose default it is."""
    file: Path | None = None
    line: int | None = None
    written: Any = None
    """What stands there, interpolations unresolved."""
    at: str = ""
    """The key that is written there, where it is not the one in question but one that holds it."""
    removes: bool = False
    """The key is taken away there."""


def is_secret_variable(name: str) -> bool:
    return is_secret(f"env.{name}")


def shown(statement: Statement, key: str) -> Place:
    """The statement as the place of `key`."""
    return Place(
        kind="file" if statement.file else "override",
        text=_without_defaults(shown_override(statement.override)),
        file=statement.file,
        line=statement.line,
        # A list or mapping that replaces another one may be long, and is shown for its own keys.
        written=None
        if statement.removes and isinstance(statement.value, (dict, list))
        else readable(key, statement.value),
        at="" if statement.at == key else statement.at,
        removes=statement.removes,
    )


def chooser(layers: Sequence[tuple[Layer, Marked]], overrides: Sequence[str], group: str) -> Place | None:
    """Who chose the file of a group: a word of the command line, or else an entry of a defaults list."""
    for word in overrides:
        left = word.lstrip("+").partition("=")[0]
        if left.lstrip("/") == group:
            return Place(kind="override", text=shown_override(word))
    for layer, tree in reversed(layers):
        entries = tree.value.get("defaults") if layer.file and not layer.package else None
        for entry in entries.value if entries else ():
            for name in entry.value if isinstance(entry.value, dict) else ():
                if name.removeprefix("override ").strip().lstrip("/") == group:
                    return Place(kind="file", file=layer.file, line=entry.line)
    return None


def concealed(place: Place) -> Place:
    """The place of a value that a secret is made of, whatever its own name is."""
    refers = isinstance(place.written, str) and "${" in place.written
    text = f"{place.text.partition('=')[0]}={HIDDEN}" if place.kind == "override" and not refers else place.text
    return replace(place, text=text, written=place.written if refers or place.written is None else HIDDEN)


def readable(key: str, value: Any) -> Any:
    """The value, as written or resolved, without what looks like a secret."""
    if isinstance(value, dict):
        return {name: readable(f"{key}.{name}", child) for name, child in value.items()}
    if isinstance(value, list):
        return [readable(key, item) for item in value]
    if isinstance(value, str) and "${" in value:
        return without_recognised(_without_defaults(value))
    if is_secret(key) and value is not None:
        return HIDDEN
    return without_recognised(value) if isinstance(value, str) else value


def _without_defaults(text: str) -> str:
    """`${oc.env:HF_TOKEN,abc}` -> `${oc.env:HF_TOKEN,...}`"""
    return _ENV_DEFAULT.sub(lambda m: f"{m[1]},...}}" if is_secret_variable(m[2]) else m[0], text)
