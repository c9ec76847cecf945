"""Keys of a recipe as dotted paths; list items by their index."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

ABSENT = object()
"""Stands for a value that is not there; None is one."""


def at(tree: Any, key: str) -> Any:
    """What stands at `key`, or ABSENT."""
    for name in key.split("."):
        if isinstance(tree, dict) and name in tree:
            tree = tree[name]
        elif isinstance(tree, list) and name.isdecimal() and int(name) < len(tree):
            tree = tree[int(name)]
        else:
            return ABSENT
    return tree


def leaves(tree: Any, key: str = "") -> Iterator[str]:
    """Paths of the settings: scalars, lists of scalars, empty mappings."""
    if not (tree and _holds_settings(tree)):
        yield key
        return
    for name, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from leaves(child, f"{key}.{name}" if key else str(name))


def holders(tree: Any, key: str = "") -> Iterator[str]:
    """Paths of the mappings and lists that hold settings, the root left out."""
    if tree and _holds_settings(tree):
        if key:
            yield key
        for name, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from holders(child, f"{key}.{name}" if key else str(name))


def _holds_settings(tree: Any) -> bool:
    return isinstance(tree, dict) or (isinstance(tree, list) and any(isinstance(item, dict) for item in tree))


def merged(fitted: Any, written: Any) -> Any:
    """The recipe as written, with the keys that the schema adds, also where an interpolation stands for a whole."""
    if isinstance(fitted, dict) and isinstance(written, dict):
        pairs = {str(name): value for name, value in written.items()}
        return {name: merged(fitted.get(name, ABSENT), pairs.get(name, ABSENT)) for name in {**fitted, **pairs}}
    if isinstance(fitted, list) and isinstance(written, list) and _holds_settings(written):
        return [merged(ours, theirs) for ours, theirs in zip_longest(fitted, written, fillvalue=ABSENT)]
    whole = isinstance(fitted, (dict, list)) and isinstance(written, str) and "${" in written
    return fitted if written is ABSENT or whole else written
