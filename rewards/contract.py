"""What a reward function is called, and what it may return.

A function returns one item per sample of its unit: a finite number, None ("not mine"), or a dict holding the
configured `key`. Everything else is a `Failure` that names function, sample and value; nothing becomes a silent zero.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from numbers import Real
from typing import Any, Literal, get_args

Granularity = Literal["sample", "group", "batch"]
Shape = Literal["trl", "vime_sample", "vime_group", "align_anything", "openrlhf", "post_process"]
FailureKind = Literal["contract", "input", "exception", "timeout", "crash", "unavailable"]

GRANULARITIES: tuple[str, ...] = get_args(Granularity)
SHAPES: tuple[Shape, ...] = get_args(Shape)
LONGEST_VALUE = 200  # characters of a repr in an error: enough to recognise, too few to flood a log
LONGEST_MESSAGE = 4000  # characters of an exception's message


class SpecError(ValueError):
    """A FunctionSpec that cannot be meant."""


@dataclass(frozen=True)
class FunctionSpec:
    """One reward function of a recipe. Raises SpecError."""

    name: str
    target: str
    """`package.module:name`, `file.py:name`, or the bare name of a built-in."""
    weight: float = 1.0
    granularity: Granularity | None = None
    """The unit of calls, time limits and retries. None: what the function declares, else the batch."""
    shape: Shape | None = None
    """Whose calling convention it was written for. None: what its parameters show (signature.py)."""
    key: str | None = None
    """For functions that return dicts: the entry that is the reward."""
    eval_key: str | None = None
    """The entry that counts in an evaluation; None: `key`."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Bound as keyword arguments at every call."""
    only: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Data column -> values of the samples that it scores; the others it leaves alone (None). {}: all samples."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise SpecError(f"a reward function needs a name without '/', not {self.name!r}")
        if isinstance(self.weight, bool) or not isinstance(self.weight, Real) or finite_number(self.weight)[1]:
            raise SpecError(f"{self.name}: weight must be a finite number, not {short_repr(self.weight)}")
        if self.granularity is not None and self.granularity not in GRANULARITIES:
            raise SpecError(f"{self.name}: granularity must be one of {GRANULARITIES}, not {self.granularity!r}")
        if self.shape is not None and self.shape not in SHAPES:
            raise SpecError(f"{self.name}: shape must be one of {SHAPES}, not {self.shape!r}")
        if not isinstance(self.params, Mapping):
            raise SpecError(f"{self.name}: params must be a mapping, not {self.params!r}")
        if not isinstance(self.only, Mapping) or not all(isinstance(v, (list, tuple)) for v in self.only.values()):
            raise SpecError(f"{self.name}: only must map a column to a list of values, not {self.only!r}")


def spec_from_mapping(raw: Mapping[str, Any]) -> FunctionSpec:
    """A FunctionSpec from a recipe or a command line. `name` defaults to the target's. Raises SpecError."""
    known = [f.name for f in fields(FunctionSpec)]
    for unknown in sorted(set(raw) - set(known)):
        near = get_close_matches(unknown, known, n=1)
        raise SpecError(f"unknown key {unknown!r}" + (f" (did you mean {near[0]!r}?)" if near else f", known: {known}"))
    target = raw.get("target")
    if not isinstance(target, str) or not target:
        raise SpecError(f"a reward function needs a target such as 'file.py:name', not {target!r}")
    given = {key: value for key, value in raw.items() if value is not None}  # null in a recipe: the default
    return FunctionSpec(**{"name": target.rpartition(":")[2], **given})


@dataclass(frozen=True, kw_only=True)
class Example:
    """One sample with the score that a function must give it: half of a SELF_TEST pair (right, wrong)."""

    completion: str
    score: float
    prompt: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    """What the example was written for; a recipe's own params do not count in a self-test."""


class PrepareError(Exception):
    """A function cannot work here (no sandbox, no model, nobody at its address): what, why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a sample, or a whole unit (index None), has no score."""

    function: str | None
    """None when no single function is to blame."""
    index: int | None
    message: str
    value: str | None = None
    """repr of what the function returned, where that is the problem."""
    kind: FailureKind = "contract"
    exception: str | None = None
    """The name of the exception's type, where the function raised one."""


@dataclass(frozen=True)
class Odd:
    """What a function returned instead of what its shape demands, in words: it takes the place of the items."""

    got: str
    expected: str


class ContractError(Exception):
    """Scoring failed. Carries every failure; the attributes are those of the first."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        first = failures[0]
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        super().__init__(first.message + more)
        self.failures = tuple(failures)
        self.function, self.index = first.function, first.index
        self.value, self.message = first.value, first.message


@dataclass(slots=True)  # one for every call
class Checked:
    """A unit's return after the contract: one value per sample, other numeric dict keys as logs."""

    values: list[float | None]
    logs: dict[str, list[Any]]
    failures: list[Failure]


def short_repr(value: object) -> str:
    """repr that survives a broken __repr__ and ends after LONGEST_VALUE characters."""
    try:
        text = str.__str__(repr(value))  # exactly a str, also where __repr__ gave a subclass
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "..."


def plain_text(value: object) -> str:
    """str() that gives exactly a str, and survives a broken __str__."""
    try:
        return str.__str__(str(value))
    except Exception:
        return short_repr(value)


def text_of_error(error: BaseException) -> str:
    """The message of an exception that somebody else's code raised: of any length, or none because __str__ raises."""
    try:
        text = str.__str__(str(error))
    except Exception as broken:
        return f"<its __str__ raised {type(broken).__name__}>"
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}... ({len(text)} characters)"


def check_returned(function: str, key: str | None, raw: object, indices: Sequence[int]) -> Checked:
    """Hold what `function` returned for the samples `indices` against the contract."""
    if key is None and type(raw) is list and len(raw) == len(indices) and _are_finite_floats(raw):
        return Checked(raw[:], {}, [])
    items = _as_items(raw, len(indices))
    if isinstance(items, Odd) or len(items) != len(indices):
        odd = items if isinstance(items, Odd) else Odd(f"{len(items)} items", f"a list of {len(indices)}")
        where = f"sample {indices[0]}" if len(indices) == 1 else f"{len(indices)} samples"
        message = f"{function} returned {odd.got} for {where}, expected {odd.expected}"
        index = indices[0] if len(indices) == 1 else None
        shown = None if isinstance(raw, Odd) else short_repr(raw)
        failure = Failure(function=function, index=index, message=message, value=shown)
        return Checked([None] * len(indices), {}, [failure])
    checked = Checked([], {}, [])
    for position, (index, item) in enumerate(zip(indices, items, strict=True)):
        try:
            value, problem = _reward(item, key)
            if problem is None and isinstance(item, Mapping):
                _collect_logs(item, key, checked.logs, position, len(indices))
        except Exception as error:  # a mapping of its own kind
            value, problem = None, _unreadable(item, error)
        checked.values.append(value)
        if problem:
            message = f"{function} returned {problem} for sample {index}"
            checked.failures.append(Failure(function=function, index=index, message=message, value=short_repr(item)))
    return checked


def _are_finite_floats(items: list[Any]) -> bool:
    """Nearly every return; asked in C."""
    return set(map(type, items)) <= {float} and all(map(math.isfinite, items))


def _as_items(raw: object, count: int) -> list[Any] | Odd:
    """The items of an ordered return value, or what came instead."""
    if isinstance(raw, Odd):
        return raw
    try:
        if isinstance(raw, (list, tuple)):
            return list(raw)
        if getattr(raw, "ndim", None) == 1 and hasattr(raw, "tolist"):  # a NumPy array or a tensor
            return list(raw.tolist())
    except Exception as error:  # a sparse tensor, one without data, a list of its own kind
        return Odd(_unreadable(raw, error), f"a list of {count}")
    return Odd(f"a {type(raw).__name__}", f"a list of {count}")


def _reward(item: object, key: str | None) -> tuple[float | None, str | None]:
    """(reward, None) or (None, what is wrong with the item)."""
    if item is None:
        return None, None
    if isinstance(item, Mapping):
        if key is None:
            return None, f"a dict, but no `key` is configured (it has {_keys(item)})"
        if key not in item:
            return None, f"a dict without the configured key {key!r} (it has {_keys(item)})"
        return (None, None) if item[key] is None else finite_number(item[key])
    if key is not None:
        return None, f"a {type(item).__name__}, but key {key!r} is configured, so a dict was expected"
    return finite_number(item)


def finite_number(item: object) -> tuple[float | None, str | None]:
    """(value, None) or (None, what is wrong with the item)."""
    try:
        if getattr(item, "shape", None) == () and hasattr(item, "item"):  # a NumPy scalar or a 0-d tensor
            item = item.item()
        if not isinstance(item, Real):
            return None, f"a {type(item).__name__} instead of a number"
        value = float(item)
    except OverflowError:
        return None, "a number beyond the range of a float"
    except Exception as error:
        return None, _unreadable(item, error)
    return (value, None) if math.isfinite(value) else (None, "NaN" if math.isnan(value) else "an infinite number")


def _collect_logs(item: Mapping[Any, Any], key: str | None, logs: dict[str, list[Any]], at: int, count: int) -> None:
    for name, entry in item.items():
        value, problem = finite_number(entry)
        if name != key and problem is None:
            logs.setdefault(plain_text(name), [None] * count)[at] = value


def _keys(item: Mapping[Any, Any]) -> str:
    return short_repr([plain_text(key) for key in item])


def _unreadable(item: object, error: Exception) -> str:
    words = text_of_error(error)[:LONGEST_VALUE].partition("\n")[0]
    return f"a {type(item).__name__} that raised {type(error).__name__} when it was read" + (words and f" ({words})")
