"""Loads a user's function and calls it in the shape it was written for (shapes.py), with a batch of ours."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.batch import Batch
from rewards.calling.arguments import call_function
from rewards.calling.loading import load
from rewards.calling.logs import LogSink
from rewards.calling.shapes import CONVENTIONS
from rewards.calling.signature import Signature, signature_of, unknown_params
from rewards.calling.targets import LoadError, is_builtin, near
from rewards.contract import Example, FunctionSpec, Granularity, Shape


class MissingColumnError(Exception):
    """A function needs a data column that the batch does not carry."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A loaded function, ready to be called with batches."""

    spec: FunctionSpec
    function: Callable[..., Any]
    signature: Signature
    shape: Shape
    granularity: Granularity
    self_test: tuple[Example, Example] | None
    prepare: Callable[..., None] | None
    """Called once with the params, in the process that will run the function. Raises PrepareError."""
    inline: bool
    """It is ours, quick and linear, so it may run in the server's own process."""

    @property
    def required(self) -> tuple[str, ...]:
        """Data columns without which it cannot be called, or not be chosen."""
        ids = ("completion_ids",) if self.signature.needs_completion_ids else ()
        return tuple(dict.fromkeys((*self.signature.required, *ids, *self.spec.only)))

    def key(self, batch: Batch) -> str | None:
        """The entry of a dict that counts for this batch."""
        return self.spec.eval_key or self.spec.key if batch.evaluation else self.spec.key


def bind(spec: FunctionSpec) -> Bound:
    """Load what a spec names and settle how it is called. Raises LoadError."""
    function = load(spec.target)
    signature = signature_of(function, spec.params, spec.shape)
    for unknown in unknown_params(spec.target, spec.params, signature):
        raise LoadError(f"{spec.name}: {spec.target} has no parameter {unknown!r}{near(unknown, signature.parameters)}")
    if signature.shape is None:
        raise LoadError(f"{spec.name}: {spec.target} {unrecognised(signature.parameters)}")
    if signature.shape == "post_process" and not signature.takes_rewards:
        known, says = ", ".join(signature.parameters), CONVENTIONS["post_process"].says
        raise LoadError(f"{spec.name}: {spec.target} takes ({known}), neither samples nor rewards: a hook is {says}")
    if signature.shape == "trl" and not signature.accepts("completions"):
        raise LoadError(f"{spec.name}: {spec.target} does not accept `completions` ({', '.join(signature.parameters)})")
    return Bound(
        spec=spec,
        function=function,
        signature=signature,
        shape=signature.shape,
        granularity=_granularity(spec, signature.shape, per_sample=bool(_declared(spec, function, "PER_SAMPLE"))),
        self_test=_declared(spec, function, "SELF_TEST"),
        prepare=_declared(spec, function, "prepare") if is_builtin(spec.target) else None,
        inline=is_builtin(spec.target) and bool(_declared(spec, function, "INLINE")),
    )


def unrecognised(parameters: Sequence[str]) -> str:
    """Why a function with these parameters cannot be called, and what would do."""
    known = "; ".join(convention.says for shape, convention in CONVENTIONS.items() if shape != "post_process")
    return (
        f"takes ({', '.join(parameters)}), which is the shape of no framework that is known here: {known}. "
        "Rename its parameters, or set `shape`"
    )


def _granularity(spec: FunctionSpec, shape: Shape, *, per_sample: bool) -> Granularity:
    """A user's function may compare the samples of a batch, so it gets all of them unless it says otherwise."""
    possible = CONVENTIONS[shape].granularities
    if spec.granularity is None:
        return "sample" if per_sample else possible[0]
    if spec.granularity not in possible:
        raise LoadError(
            f"{spec.name}: granularity {spec.granularity!r} is not possible for {CONVENTIONS[shape].says}; "
            f"possible: {', '.join(possible)}"
        )
    return spec.granularity


def call(bound: Bound, batch: Batch, sink: LogSink, indices: Sequence[int] = ()) -> Any:
    """What the function returns, one item per sample (an awaitable of it for async functions).

    `indices`: positions of the samples in the whole batch. Raises MissingColumnError and whatever the function raises.
    """
    problem = missing_column(bound.spec.name, bound.required, batch.columns)
    if problem:
        raise MissingColumnError(problem)
    return call_function(bound.function, bound.signature, bound.shape, bound.spec, batch, sink, indices)


def missing_column(function: str, required: Iterable[str], available: Iterable[str]) -> str | None:
    """What is missing, in words, or None."""
    names = list(available)
    for column in required:
        if column not in names:
            hint = near(column, names) if names else " (the request carries no columns)"
            return f"{function} needs the column {column!r}, which is not there{hint}"
    return None


def _declared(spec: FunctionSpec, function: Callable[..., Any], name: str) -> Any:
    """An attribute of the function; our own modules, which hold one function each, declare it at module level."""
    module = sys.modules.get(getattr(function, "__module__", "")) if is_builtin(spec.target) else None
    return getattr(function, name, getattr(module, name, None))
