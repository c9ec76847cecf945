"""An unresolved recipe -> a RunConfig, and everything that does not fit the schema, all of it at once."""

import dataclasses
import inspect
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.addresses import port_of
from orchestrator.assets import ASSETS
from orchestrator.fieldtypes import accepts, readable
from orchestrator.kinds import GENERATION_KINDS, STARTED_REWARD
from orchestrator.schema import AUTO, RunConfig


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


def register_resolvers() -> None:
    """`${shipped:NAME}` a model that ships; `${sum:a,b}`; `${url_port:URL}` the port that an address names."""
    OmegaConf.register_new_resolver("shipped", lambda name: str(ASSETS / str(name)), replace=True)
    OmegaConf.register_new_resolver("sum", lambda *terms: sum(terms), replace=True)
    OmegaConf.register_new_resolver("url_port", lambda url: port_of(str(url)) or AUTO, replace=True)


def with_defaults(raw: DictConfig) -> DictConfig:
    """The recipe over the schema's defaults, so that an interpolation finds a field that no YAML mentions."""
    whole = deepcopy(raw)
    OmegaConf.set_struct(whole, False)
    _add_absent(whole, dataclasses.asdict(RunConfig()))
    return whole


def _add_absent(node: DictConfig, defaults: dict[str, Any]) -> None:
    """In place. OmegaConf.merge would also replace a `???`, and with it the finding that it is missing."""
    for key, value in defaults.items():
        if key not in node and not OmegaConf.is_missing(node, key):
            node[key] = value
        elif isinstance(value, dict) and OmegaConf.is_dict(node._get_node(key)):
            _add_absent(node[key], value)


def settled(raw: DictConfig) -> DictConfig:
    """A copy in which what only Hydra knows (`${hydra:...}`, `${now:...}`) is written out: what a resume can read."""
    copy = deepcopy(raw)
    _settle(copy)
    return copy


def _settle(node: DictConfig) -> None:
    for key in map(str, node):
        child = node._get_node(key)
        if any(word in _source(node, key) for word in ("${hydra:", "${now:")):
            node[key] = node[key]
        elif isinstance(child, DictConfig) and not child._is_none() and not child._is_missing():
            _settle(child)


def resolve(raw: DictConfig) -> tuple[RunConfig, tuple[Problem, ...]]:
    """Resolve interpolations and fill the dataclasses. A value that does not fit is a Problem and keeps its default."""
    problems: list[Problem] = []
    run = _fill(RunConfig, raw, "", problems)
    return run, tuple(_without_echoes(problems))


def auto_ports(raw: DictConfig) -> tuple[str, ...]:
    """Paths of the ports that are to be picked for this run."""
    started = tuple(name for name, kind in GENERATION_KINDS.items() if kind.started)
    local = (("generation", started), ("reward", (STARTED_REWARD,)))
    return tuple(
        f"{part}.port"
        for part, kinds in local
        if OmegaConf.select(raw, f"{part}.kind") in kinds and OmegaConf.select(raw, f"{part}.port") == AUTO
    )


def _fill(cls: type, node: Any, path: str, problems: list[Problem]) -> Any:
    hints = get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    instance = cls()
    for key in map(str, node):
        where = f"{path}.{key}" if path else key
        if key not in fields:
            near = tuple(f"{path}.{name}" if path else name for name in fields)
            leaf, value = _first_leaf(where, _peek(node, key))
            problems.append(Problem(kind="unknown", path=leaf, value=value, unknown=where, near=near))
            continue
        value = _value(node, key, where, problems)
        if value is _ABSENT:
            continue
        fitted = _fit(hints[key], fields[key], value, where, problems, _source(node, key))
        if fitted is not _ABSENT:
            setattr(instance, key, fitted)
    return instance


_ABSENT = object()


def _value(node: DictConfig, key: str, where: str, problems: list[Problem]) -> Any:
    if OmegaConf.is_missing(node, key):
        problems.append(Problem(kind="missing", path=where, value="???"))
        return _ABSENT
    try:
        value = node[key]
    except OmegaConfBaseException as error:
        detail = str(error).splitlines()[0]
        if "MissingMandatoryValue" not in detail and "Missing mandatory value" not in detail:
            problems.append(Problem(kind="interpolation", path=where, value=_peek(node, key), expected=detail))
        return _ABSENT
    return value


def _fit(hint: Any, field: Any, value: Any, where: str, problems: list[Problem], source: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, DictConfig):
        return _fill(hint, value, where, problems)  # type: ignore[arg-type]
    element = next(iter(getattr(hint, "__args__", ())), None)
    if dataclasses.is_dataclass(element) and isinstance(value, ListConfig):
        filled = (_element(element, value, i, f"{where}.{i}", problems) for i in range(len(value)))
        return [item for item in filled if item is not _ABSENT]
    plain = _plain(value, where, problems)
    if plain is _ABSENT:
        return _ABSENT
    annotation = inspect.formatannotation(hint)
    if annotation == "str" and isinstance(plain, (int, float)) and not isinstance(plain, bool):
        plain = str(plain)  # model.name=7 is the name "7", as for Hydra
    if dataclasses.is_dataclass(hint) or not accepts(annotation, plain):
        problems.append(Problem(kind="type", path=where, value=plain, expected=readable(annotation), source=source))
        return _ABSENT
    if isinstance(plain, float) and not math.isfinite(plain):
        problems.append(Problem(kind="type", path=where, value=plain, expected="a finite number", source=source))
        return _ABSENT
    choices = field.metadata.get("choices")
    if choices and plain not in choices:
        problems.append(
            Problem(kind="choice", path=where, value=plain, expected=", ".join(map(str, choices)), source=source)
        )
        return _ABSENT
    return float(plain) if annotation == "float" else plain


def _element(cls: Any, items: ListConfig, index: int, where: str, problems: list[Problem]) -> Any:
    item = items[index]
    if not isinstance(item, DictConfig):
        problems.append(Problem(kind="type", path=where, value=item, expected="a mapping"))
        return _ABSENT
    return _fill(cls, item, where, problems)


def _plain(value: Any, where: str, problems: list[Problem]) -> Any:
    """Containers as Python values, each leaf resolved by itself so that one bad interpolation hides nothing."""
    if isinstance(value, DictConfig):
        pairs = ((k, _value(value, k, f"{where}.{k}", problems)) for k in map(str, value))
        return {k: _plain(v, f"{where}.{k}", problems) for k, v in pairs if v is not _ABSENT}
    if isinstance(value, ListConfig):
        try:
            return OmegaConf.to_container(value, resolve=True)
        except OmegaConfBaseException as error:
            problems.append(Problem(kind="interpolation", path=where, expected=str(error).splitlines()[0]))
            return _ABSENT
    return value


def _peek(node: DictConfig, key: Any) -> Any:
    """The value as written, interpolation unresolved."""
    return OmegaConf.to_container(node, resolve=False)[key]  # type: ignore[index, call-overload]


def _first_leaf(path: str, value: Any) -> tuple[str, Any]:
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        path = f"{path}.{key}"
    return path, value


def _source(node: DictConfig, key: str) -> str:
    return str(_peek(node, key)) if OmegaConf.is_interpolation(node, key) else ""


def _without_echoes(problems: list[Problem]) -> Iterator[Problem]:
    """Drop a problem that only repeats, through an interpolation, one that is reported where it was written."""
    flagged = {problem.path for problem in problems}
    for problem in problems:
        text = problem.source or (str(problem.value) if problem.kind == "interpolation" else "")
        if not any(f"{{{path}}}" in text or f"{{{path}." in text for path in flagged - {problem.path}):
            yield problem
