"""Who says what: every place of a recipe's files and overrides that speaks about one key, in merge order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf._utils import get_yaml_loader

from orchestrator.compose import Layer

MISSING = "???"
"""A value that a group leaves to the recipe."""


@dataclass(frozen=True, kw_only=True)
class Marked:
    """A value of a YAML file and the line of its key."""

    value: Any
    """A scalar, dict[str, Marked] or list[Marked]."""
    line: int | None

    def plain(self) -> Any:
        """The value without its marks."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        return [item.plain() for item in self.value] if isinstance(self.value, list) else self.value


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One place that says what a key is."""

    value: Any
    """As written, interpolations included. Of a removal: what stands there instead."""
    at: str
    """The key that is written there: the one in question, or one that holds it."""
    removes: bool = False
    """The place takes the key away: it deletes it, or replaces the whole that held it."""
    yields: bool = False
    """It is a `???` that leaves a value that is there as it is."""
    file: Path | None = None
    line: int | None = None
    override: str = ""


def read(layers: Iterable[Layer]) -> list[tuple[Layer, Marked]]:
    """Each layer with what it says, from the root of the recipe on. Raises OSError and yaml.YAMLError.

    A file that Hydra found outside folders (in a Python package) is left out: what it says is said by nobody.
    """
    return [(layer, _tree(layer)) for layer in layers if layer.file or layer.override]


def statements(layers: Sequence[tuple[Layer, Marked]], path: str) -> list[Statement]:
    """Every place that speaks about `path`, in merge order: the last one holds. [] = nobody does."""
    said: list[Statement] = []
    for layer, tree in layers:
        statement = _about(layer, tree, path.split("."))
        there = bool(said) and not said[-1].removes
        if statement is None or (not there and statement.removes):
            continue
        if not (there and statement.yields):
            said.append(statement)
    return said


def _about(layer: Layer, tree: Marked, path: Sequence[str]) -> Statement | None:
    """Follow the path down to where the layer has a value, or something that cannot hold the rest of the path."""
    in_list = False
    for depth, name in enumerate(path):
        at = ".".join(path[:depth])
        if layer.deletes and at == layer.package:
            return _statement(layer, tree, at, removes=True)
        if not isinstance(tree.value, (dict, list)):
            refers = isinstance(tree.value, str) and "${" in tree.value
            return _statement(layer, tree, at, removes=not refers, yields=not in_list)
        in_list = in_list or isinstance(tree.value, list)
        child = _child(tree, name)
        if child is None:
            # A list replaces the list before it, and all that its items said; a mapping adds to the one before.
            return _statement(layer, tree, at, removes=True) if in_list else None
        tree = child
    whole = ".".join(path)
    if layer.deletes and layer.package != whole:
        return None
    return _statement(layer, tree, whole, removes=layer.deletes, yields=not in_list)


def _statement(layer: Layer, tree: Marked, at: str, *, removes: bool, yields: bool = False) -> Statement:
    return Statement(
        value=tree.plain(),
        at=at,
        removes=removes,
        yields=yields and layer.file is not None and tree.value == MISSING,
        file=layer.file,
        line=tree.line,
        override=layer.override,
    )


def _child(tree: Marked, key: str) -> Marked | None:
    if isinstance(tree.value, dict):
        return tree.value.get(key)
    index = int(key) if key.isdecimal() else len(tree.value or ())
    return tree.value[index] if tree.value and index < len(tree.value) else None


def _tree(layer: Layer) -> Marked:
    """The layer from the root of the recipe on."""
    tree = marked_file(layer.file) if layer.file else _marked(layer.value)
    for name in reversed(layer.package.split(".") if layer.package else []):
        tree = Marked(value={name: tree}, line=tree.line)
    return tree


def marked_file(path: Path) -> Marked:
    """A YAML file as Hydra reads it, with lines. Raises OSError and yaml.YAMLError."""
    loader = get_yaml_loader()(path.read_text(encoding="utf-8"))
    node = loader.get_single_node()
    return Marked(value={}, line=1) if node is None else _from_node(loader, node, 1)


def _from_node(loader: Any, node: yaml.Node, line: int) -> Marked:
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)  # `<<: *anchor`, with the lines of the anchor
        pairs = (
            (str(loader.construct_object(key)), _from_node(loader, child, key.start_mark.line + 1))
            for key, child in node.value
        )
        return Marked(value=dict(pairs), line=line)
    if isinstance(node, yaml.SequenceNode):
        return Marked(value=[_from_node(loader, child, child.start_mark.line + 1) for child in node.value], line=line)
    return Marked(value=loader.construct_object(node, deep=True), line=line)


def _marked(value: Any) -> Marked:
    if isinstance(value, dict):
        return Marked(value={str(key): _marked(child) for key, child in value.items()}, line=None)
    return Marked(value=[_marked(item) for item in value] if isinstance(value, list) else value, line=None)
