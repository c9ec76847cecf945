"""Values of a recipe that is not resolved yet, read one by one, so that one bad interpolation hides nothing else."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from omegaconf import MISSING, Container, DictConfig, ListConfig, Node, OmegaConf, ValueNode
from omegaconf.errors import OmegaConfBaseException


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One place where the recipe does not fit the schema. The CFG rules turn it into a finding."""

    kind: Literal["unknown", "type", "missing", "interpolation", "choice"]
    path: str
    """Full path of the setting; for an unknown mapping, of its first leaf."""
    value: Any = None
    expected: str = ""
    """The type, the choices, or what is wrong with the interpolation."""
    unknown: str = ""
    """The part of the path that is not known."""
    near: tuple[str, ...] = ()
    """The keys that exist where the unknown one stands, as full paths."""
    source: str = ""
    """The interpolation that the value came through, if any: the mistake is where it points."""


ABSENT = object()
"""What stands for a value that cannot be had."""


def value_at(node: DictConfig, key: str, where: str, problems: list[Problem]) -> Any:
    """The resolved value of a key, which may be a container; ABSENT, with the Problem added, when there is none."""
    child = node.__dict__["_content"].get(key)
    if isinstance(child, ValueNode):
        written = child._value()
        if not isinstance(written, str) or ("${" not in written and written != MISSING):
            return written
        if written != MISSING and (value := _referred(node, written)) is not ABSENT:
            return value
    if OmegaConf.is_missing(node, key):
        problems.append(Problem(kind="missing", path=where, value=MISSING))
        return ABSENT
    try:
        return node[key]
    except OmegaConfBaseException as error:
        detail = str(error).splitlines()[0]
        if "MissingMandatoryValue" not in detail and "Missing mandatory value" not in detail:
            problems.append(Problem(kind="interpolation", path=where, value=as_written(node, key), expected=detail))
        return ABSENT


_REFERENCE = re.compile(r"\$\{([a-z_]+(?:\.[a-z_]+)*)\}")


def _referred(node: DictConfig, text: str) -> Any:
    """The value of `${a.b}`, or of a text around such references, where they lead to plain values; else ABSENT.

    OmegaConf's own grammar takes ten times as long, and that is most of what a sweep of values costs.
    """
    if match := _REFERENCE.fullmatch(text):
        return _target(node, match[1])
    if not {"$", "\\"}.isdisjoint(_REFERENCE.sub("", text)):
        return ABSENT
    values = [_target(node, name) for name in _REFERENCE.findall(text)]
    if any(type(value) not in (str, int) for value in values):
        return ABSENT
    return _REFERENCE.sub(lambda _: str(values.pop(0)), text)


def _target(node: DictConfig, path: str) -> Any:
    target: Any = node._get_root()
    for name in path.split("."):
        content = target.__dict__["_content"] if isinstance(target, DictConfig) else None
        target = content.get(name) if isinstance(content, dict) else None
    value = target._value() if isinstance(target, ValueNode) else ABSENT
    return ABSENT if isinstance(value, str) and ("${" in value or value == MISSING) else value


def plain_value(value: Any, where: str, problems: list[Problem]) -> Any:
    """Containers as Python values, each leaf resolved by itself so that one bad interpolation hides nothing."""
    if isinstance(value, DictConfig):
        pairs = ((k, value_at(value, k, f"{where}.{k}", problems)) for k in map(str, value))
        return {k: plain_value(v, f"{where}.{k}", problems) for k, v in pairs if v is not ABSENT}
    if isinstance(value, ListConfig):
        try:
            return OmegaConf.to_container(value, resolve=True)
        except OmegaConfBaseException as error:
            problems.append(Problem(kind="interpolation", path=where, expected=str(error).splitlines()[0]))
            return ABSENT
    return value


def as_written(node: DictConfig, key: Any) -> Any:
    """The value as written, interpolation unresolved."""
    child = node._get_node(key)
    if isinstance(child, Container) and not child._is_interpolation():
        return OmegaConf.to_container(child, resolve=False)
    return child._value() if isinstance(child, Node) else None


def interpolation_at(node: DictConfig, key: str) -> str:
    """The interpolation that stands there; '' = a value does."""
    child = node.__dict__["_content"].get(key)
    written = child._value() if isinstance(child, Node) else None
    return written if isinstance(written, str) and "${" in written else ""
