"""What an interpolated value refers to: other settings, environment variables, Hydra."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from omegaconf._utils import split_key
from omegaconf.errors import OmegaConfBaseException
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser
from omegaconf.grammar_parser import parse

ENVIRONMENT = "oc.env"
_OF_KEYS = ("oc.select", "oc.dict.keys", "oc.dict.values", "oc.deprecated")
"""OmegaConf's own resolvers whose first argument is a key of the recipe."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    kind: Literal["key", "environment", "hydra"]
    name: str
    """Full path of a key, name of a variable, or what follows `hydra:`."""


def references(value: Any, path: str, text_of: Callable[[str], str]) -> list[Reference]:
    """What `value`, written at `path`, refers to, in the order of reading, each once. A text that is no valid
    interpolation refers to nothing. `text_of` resolves an interpolation inside the name of another."""
    found: dict[Reference, None] = {}
    for text in _texts(value):
        try:
            tree = parse(text)
        except OmegaConfBaseException:
            continue  # the recipe's own rule reports it (CFG003)
        found |= dict.fromkeys(_walk(tree, path, text_of))
    return list(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and "${" in value:
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _walk(node: Any, path: str, text_of: Callable[[str], str]) -> Iterator[Reference]:
    if isinstance(node, OmegaConfGrammarParser.InterpolationNodeContext):
        inside = node.getText()[2:-1]
        name = text_of(inside) if "${" in inside else inside
        yield Reference(kind="key", name=_absolute(name.strip(), path))
    elif isinstance(node, OmegaConfGrammarParser.InterpolationResolverContext):
        resolver, _, arguments = node.getText()[2:-1].partition(":")
        first = arguments.partition(",")[0].strip().strip("'\"")
        if "${" not in first:
            if resolver == ENVIRONMENT:
                yield Reference(kind="environment", name=first)
            elif resolver in ("hydra", "now"):
                yield Reference(kind="hydra", name=f"{resolver}:{arguments}")
            elif resolver in _OF_KEYS:
                yield Reference(kind="key", name=_absolute(first, path))
    for child in getattr(node, "children", None) or ():
        yield from _walk(child, path, text_of)


def _absolute(name: str, path: str) -> str:
    """`..a[b]` written at `path` -> the full dotted path. One dot is the mapping that holds the value."""
    parts = split_key(name.lstrip("."))
    dots = len(name) - len(name.lstrip("."))
    return ".".join([*path.split(".")[:-dots], *parts] if dots else parts)
