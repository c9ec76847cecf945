"""Where values come from, as people read it and as machines do."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from orchestrator.fields.docs import SOURCE
from orchestrator.why import Explained, Recipe
from orchestrator.why.places import Place

PROJECT = SOURCE.parent.parent


def text(recipe: Recipe, keys: Sequence[str]) -> str:
    """A setting with all that led to its value; of a key that holds several, each on a line. Raises UnknownKeyError."""
    return "\n".join(line for key in keys for line in _about(recipe, key))


def _about(recipe: Recipe, key: str) -> Iterator[str]:
    leaves = recipe.leaves(key)
    if len(leaves) == 1:
        yield from _tree(recipe.explain(leaves[0]), "")
        return
    if chosen := recipe.chosen(key):
        file, by = chosen
        yield f"{key}: {_where(file)}" + (f", chosen by {_where(by)}" if by else "")
    yield from (_summary(recipe.explain(leaf)) for leaf in leaves)


def _tree(explained: Explained, indent: str) -> Iterator[str]:
    yield indent + _line(explained)
    yield from (f"{indent}    before: {_written(place)}{_where(place)}" for place in explained.before)
    yield from (f"{indent}    note: {note}" for note in explained.notes)
    for need in explained.needs:
        yield from _tree(need, indent + "  ")


def _summary(explained: Explained) -> str:
    before = ", ".join(_where(place) for place in explained.before)
    asides = [*([f"before: {before}"] if before else []), *explained.notes]
    return _line(explained) + (f"  ({'; '.join(asides)})" if asides else "")


def as_json(recipe: Recipe, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Of each setting {key, value, place: {kind, text, file, line, written, at, removes}, before: [place],
    needs: [the same of what it refers to], notes}. Raises UnknownKeyError."""
    return [_data(recipe.explain(leaf)) for key in keys for leaf in recipe.leaves(key)]


def _data(explained: Explained) -> dict[str, Any]:
    return {
        "key": explained.key,
        "value": explained.value,
        "place": _plain(explained.place),
        "before": [_plain(place) for place in explained.before],
        "needs": [_data(need) for need in explained.needs],
        "notes": list(explained.notes),
    }


def _plain(place: Place) -> dict[str, Any]:
    return {**asdict(place), "file": str(place.file) if place.file else None}


def _line(explained: Explained) -> str:
    place = explained.place
    written = "" if place.kind not in ("file", "override") or place.written == explained.value else _written(place)
    return f"{explained.key} = {_text(explained.value)}  <- {written}{_where(place)}"


def _written(place: Place) -> str:
    if place.removes:
        return f"{place.at or 'it'} is {'taken out' if place.written is None else _text(place.written)}  "
    return f"{place.at + ': ' if place.at else ''}{_text(place.written)}  "


def _where(place: Place) -> str:
    text = place.text or {"nobody": "nobody says it"}.get(place.kind, "")
    if place.kind == "override":
        return f"command line: {text}"
    if place.file is None:
        return text
    where = _short(place.file) + (f":{place.line}" if place.line else "")
    return f"{text} ({where})" if text else where


def _short(path: Path) -> str:
    """As a shell in this folder would name it; ours by its place in the project."""
    for folder in (Path.cwd(), PROJECT):
        if path.is_relative_to(folder):
            return str(path.relative_to(folder))
    return str(path)


def _text(value: Any) -> str:
    """YAML on one line, and interpolations as they stand there."""
    if isinstance(value, str) and "${" in value:
        return value
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
