"""An unresolved recipe -> a RunConfig, and everything that does not fit the schema, all of it at once."""

import dataclasses
import inspect
import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from omegaconf import DictConfig, ListConfig, OmegaConf

from orchestrator.addresses import port_of
from orchestrator.assets import ASSETS
from orchestrator.fields.types import accepts, readable
from orchestrator.kinds import GENERATION_KINDS, STARTED_REWARD
from orchestrator.reading import ABSENT, Problem, as_written, interpolation_at, plain_value, value_at
from orchestrator.schema import AUTO, RunConfig


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
        if any(word in interpolation_at(node, key) for word in ("${hydra:", "${now:")):
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
    served = tuple(name for name, kind in GENERATION_KINDS.items() if kind.server)
    started = tuple(name for name in served if GENERATION_KINDS[name].started)
    nccl = OmegaConf.select(raw, "generation.weight_sync.backend") == "nccl"
    opened = {
        "generation.port": ("generation.kind", started),
        "generation.weight_sync.port": ("generation.kind", served if nccl else ()),
        "reward.port": ("reward.kind", (STARTED_REWARD,)),
    }
    return tuple(
        port
        for port, (kind, kinds) in opened.items()
        if OmegaConf.select(raw, kind) in kinds and OmegaConf.select(raw, port) == AUTO
    )


@dataclass(frozen=True, kw_only=True)
class _Field:
    """A field of the schema, looked up once: a sweep fills the same classes thousands of times."""

    annotation: str
    section: type | None
    """The dataclass that a mapping fills."""
    element: type | None
    """The dataclass that each item of a list fills."""
    choices: tuple[Any, ...]


@cache
def _fields(cls: type) -> Mapping[str, _Field]:
    hints = get_type_hints(cls)
    return {field.name: _field(hints[field.name], field.metadata) for field in dataclasses.fields(cls)}


def _field(hint: Any, metadata: Mapping[str, Any]) -> _Field:
    element = next(iter(getattr(hint, "__args__", ())), None)
    return _Field(
        annotation=inspect.formatannotation(hint),
        section=hint if dataclasses.is_dataclass(hint) else None,  # type: ignore[arg-type]
        element=element if dataclasses.is_dataclass(element) else None,  # type: ignore[arg-type]
        choices=metadata.get("choices", ()),
    )


def _fill(cls: type, node: Any, path: str, problems: list[Problem]) -> Any:
    fields = _fields(cls)
    instance = cls()
    for key in map(str, node):
        where = f"{path}.{key}" if path else key
        if key not in fields:
            near = tuple(f"{path}.{name}" if path else name for name in fields)
            leaf, value = _first_leaf(where, as_written(node, key))
            problems.append(Problem(kind="unknown", path=leaf, value=value, unknown=where, near=near))
            continue
        value = value_at(node, key, where, problems)
        if value is ABSENT:
            continue
        fitted = _fit(fields[key], value, where, problems, interpolation_at(node, key))
        if fitted is not ABSENT:
            setattr(instance, key, fitted)
    return instance


def _fit(field: _Field, value: Any, where: str, problems: list[Problem], source: str) -> Any:
    if field.section and isinstance(value, DictConfig):
        return _fill(field.section, value, where, problems)
    if field.element and isinstance(value, ListConfig):
        filled = (_element(field.element, value, i, f"{where}.{i}", problems) for i in range(len(value)))
        return [item for item in filled if item is not ABSENT]
    plain = plain_value(value, where, problems)
    if plain is ABSENT:
        return ABSENT
    if field.annotation == "str" and isinstance(plain, (int, float)) and not isinstance(plain, bool):
        plain = str(plain)  # model.name=7 is the name "7", as for Hydra
    if field.annotation == "dict[str, str]" and isinstance(plain, dict):
        plain = {name: _as_variable(item) for name, item in plain.items()}
        for name, item in list(plain.items()):
            if not isinstance(item, str):
                problems.append(Problem(kind="type", path=f"{where}.{name}", value=item, expected="str", source=source))
                del plain[name]
    expected = ""
    if field.section or not accepts(field.annotation, plain):
        expected = readable(field.annotation)
    elif isinstance(plain, float) and not math.isfinite(plain):
        expected = "a finite number"
    if expected:
        problems.append(Problem(kind="type", path=where, value=plain, expected=expected, source=source))
        return ABSENT
    if field.choices and plain not in field.choices:
        words = ", ".join(map(str, field.choices))
        problems.append(Problem(kind="choice", path=where, value=plain, expected=words, source=source))
        return ABSENT
    return float(plain) if field.annotation == "float" else plain


def _as_variable(value: Any) -> Any:
    """An environment variable is text: `OMP_NUM_THREADS: 4` is "4", `true` is "true", as a shell has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def _element(cls: Any, items: ListConfig, index: int, where: str, problems: list[Problem]) -> Any:
    item = items[index]
    if not isinstance(item, DictConfig):
        problems.append(Problem(kind="type", path=where, value=item, expected="a mapping"))
        return ABSENT
    return _fill(cls, item, where, problems)


def _first_leaf(path: str, value: Any) -> tuple[str, Any]:
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        path = f"{path}.{key}"
    return path, value


def _without_echoes(problems: list[Problem]) -> Iterator[Problem]:
    """Drop a problem that only repeats, through an interpolation, one that is reported where it was written."""
    flagged = {problem.path for problem in problems}
    for problem in problems:
        text = problem.source or (str(problem.value) if problem.kind == "interpolation" else "")
        if not any(f"{{{path}}}" in text or f"{{{path}." in text for path in flagged - {problem.path}):
            yield problem
