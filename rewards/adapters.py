"""Calls a user's function in the shape it was written for.

Only TRL's shape is here: `f(prompts, completions, **columns) -> list`, sync or async. vime and Align-Anything shapes
join as further entries of SHAPES with an arguments builder of their own.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from rewards.batch import Batch
from rewards.contract import Example, FunctionSpec, Granularity, short_repr
from rewards.loading import load
from rewards.signature import Signature, signature_of
from rewards.targets import LoadError, is_builtin, near

Shape = Literal["trl"]
SHAPES: tuple[Shape, ...] = ("trl",)


class MissingColumnError(Exception):
    """A function needs a data column that the batch does not carry."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A loaded function, ready to be called with batches."""

    spec: FunctionSpec
    function: Callable[..., Any]
    signature: Signature
    granularity: Granularity
    self_test: tuple[Example, Example] | None
    shape: Shape = "trl"

    @property
    def required(self) -> tuple[str, ...]:
        """Data columns without which it cannot be called, or not be chosen."""
        return tuple(dict.fromkeys((*self.signature.required, *self.spec.only)))


@dataclass
class LogSink:
    """What a function hands to TRL's `log_extra` (one value per sample) and `log_metric` (one value per call)."""

    count: int
    logs: dict[str, list[Any]] = field(default_factory=dict)

    def extra(self, column: str, values: Iterable[Any]) -> None:
        listed = [loggable(value) for value in values]
        if len(listed) != self.count:
            raise ValueError(f"log_extra({column!r}) got {len(listed)} values for {self.count} samples")
        self.logs[column] = listed

    def metric(self, name: str, value: Any) -> None:
        self.logs[name] = [loggable(value)] * self.count


def bind(spec: FunctionSpec) -> Bound:
    """Load what a spec names and settle how it is called. Raises LoadError."""
    function = load(spec.target)
    signature = signature_of(function, spec.params)
    for unknown in [name for name in spec.params if not signature.accepts(name)]:
        raise LoadError(f"{spec.name}: {spec.target} has no parameter {unknown!r}{near(unknown, signature.parameters)}")
    if not signature.accepts("completions"):
        raise LoadError(f"{spec.name}: {spec.target} does not accept `completions` ({', '.join(signature.parameters)})")
    per_sample = bool(_declared(spec, function, "PER_SAMPLE"))
    pair = _declared(spec, function, "SELF_TEST")
    return Bound(
        spec=spec,
        function=function,
        signature=signature,
        # A user's function may compare the samples of a batch, so it gets all of them unless it says otherwise.
        granularity=spec.granularity or ("sample" if per_sample else "batch"),
        # The pair was written for the function's defaults; with other parameters it proves nothing.
        self_test=pair if not spec.params else None,
    )


def call(bound: Bound, batch: Batch, sink: LogSink) -> Any:
    """The raw result (an awaitable for async functions). Raises MissingColumnError and whatever the function raises."""
    problem = missing_column(bound.spec.name, bound.signature.required, batch.columns)
    if problem:
        raise MissingColumnError(problem)
    return bound.function(**_trl_arguments(bound, batch, sink))


def missing_column(function: str, required: Iterable[str], available: Iterable[str]) -> str | None:
    """What is missing, in words, or None."""
    names = list(available)
    for column in required:
        if column not in names:
            hint = near(column, names) if names else " (the request carries no columns)"
            return f"{function} needs the column {column!r}, which is not there{hint}"
    return None


def loggable(value: Any) -> float | int | str | bool | None:
    """A value that JSON can carry: finite numbers and strings as they are, NaN as None, the rest as repr."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if value is None or isinstance(value, (int, str)) else short_repr(value)


def _trl_arguments(bound: Bound, batch: Batch, sink: LogSink) -> dict[str, Any]:
    """What TRL passes, but for columns that the function has no parameter for (TRL would raise TypeError)."""
    offered: dict[str, Any] = {
        "trainer_state": None,
        "log_extra": sink.extra,
        "log_metric": sink.metric,
        "statuses": list(batch.statuses) if batch.statuses is not None else ["completed"] * len(batch),
        **{name: list(column) for name, column in batch.columns.items()},
        **bound.spec.params,
        "prompts": list(batch.prompts),
        "completions": list(batch.completions),
    }
    return {name: value for name, value in offered.items() if bound.signature.accepts(name)}


def _declared(spec: FunctionSpec, function: Callable[..., Any], name: str) -> Any:
    """An attribute of the function; our own modules, which hold one function each, declare it at module level."""
    module = sys.modules.get(getattr(function, "__module__", "")) if is_builtin(spec.target) else None
    return getattr(function, name, getattr(module, name, None))
