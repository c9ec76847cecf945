"""What a server says about a function, and the proof that the function works here: its self-test."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rewards.batch import Batch
from rewards.calling.adapters import Bound
from rewards.calling.loading import source_sha256
from rewards.calling.signature import signature_of
from rewards.calling.targets import LoadError, is_builtin
from rewards.contract import Example, Granularity, PrepareError, Shape
from rewards.running.execute import run_unit


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """Outcome of a function's SELF_TEST pair. `passed` is None where there is no pair to run."""

    passed: bool | None
    detail: str


@dataclass(frozen=True, kw_only=True)
class FunctionInfo:
    """A function as the server knows it; what `/info` shows."""

    name: str
    target: str
    weight: float
    granularity: Granularity
    shape: Shape
    key: str | None
    eval_key: str | None
    params: Mapping[str, Any]
    required_columns: tuple[str, ...]
    optional_columns: tuple[str, ...]
    """Columns that it reads where there are any; a parameter with a default of its own is a setting, not a column."""
    only: Mapping[str, Sequence[Any]]
    is_async: bool
    inline: bool
    wants_completion_ids: bool
    source_sha256: str | None
    self_test: SelfTest

    @property
    def is_hook(self) -> bool:
        """It processes rewards and gives none."""
        return self.shape == "post_process"

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_wire(raw: dict[str, Any]) -> "FunctionInfo":
        columns = {name: tuple(raw[name]) for name in ("required_columns", "optional_columns")}
        return FunctionInfo(**{**raw, **columns, "self_test": SelfTest(**raw["self_test"])})


def describe(bound: Bound) -> FunctionInfo:
    """Prepares the function and runs its self-test, so it costs one call per example. Raises LoadError."""
    if bound.prepare is not None:
        try:
            bound.prepare(**bound.spec.params)
        except PrepareError as error:
            raise LoadError(f"{bound.spec.name} ({bound.spec.target}) cannot work here: {error}") from error
    return FunctionInfo(
        name=bound.spec.name,
        target=bound.spec.target,
        weight=bound.spec.weight,
        granularity=bound.granularity,
        shape=bound.shape,
        key=bound.spec.key,
        eval_key=bound.spec.eval_key,
        params=bound.spec.params,
        required_columns=bound.required,
        optional_columns=_optional_columns(bound),
        only=bound.spec.only,
        is_async=bound.signature.is_async,
        inline=bound.inline,
        wants_completion_ids=bound.signature.wants_completion_ids,
        source_sha256=source_sha256(bound.function),
        self_test=run_self_test(bound),
    )


def _optional_columns(bound: Bound) -> tuple[str, ...]:
    if is_builtin(bound.spec.target):  # its parameters with a default are settings
        return ()
    parameters = inspect.signature(bound.function).parameters
    named = [name for name in bound.signature.optional if _stands_for_nothing(parameters[name].default)]
    # Of the other frameworks' calling conventions the gold is a part, which the column `label` fills.
    takes_gold = bound.shape in ("vime_sample", "vime_group", "openrlhf")
    takes_gold |= bound.shape == "align_anything" and len(parameters) > len(("prompts", "responses"))
    return tuple(dict.fromkeys(["label"] * takes_gold + named))


def _stands_for_nothing(default: Any) -> bool:
    return default is None or (isinstance(default, (str, list, tuple)) and not default)


def self_test_problem(functions: Iterable[FunctionInfo]) -> str | None:
    """The first self-test that failed, in words, or None."""
    for function in functions:
        if function.self_test.passed is False:
            return f"the self-test of {function.name} ({function.target}) failed: {function.self_test.detail}"
    return None


def run_self_test(bound: Bound) -> SelfTest:
    """Score the right and the wrong example, each as a batch of one."""
    if bound.self_test is None:
        return SelfTest(passed=None, detail="the function has none")
    for label, example in zip(("right", "wrong"), bound.self_test, strict=True):
        problem = _example_problem(bound, example)
        if problem:
            return SelfTest(passed=False, detail=f"{label} example: {problem}")
    right, wrong = bound.self_test
    return SelfTest(passed=True, detail=f"right example {right.score:g}, wrong example {wrong.score:g}")


def _example_problem(bound: Bound, example: Example) -> str | None:
    columns = {name: [value] for name, value in example.columns.items()}
    batch = Batch(prompts=[example.prompt], completions=[example.completion], columns=columns, group_ids=[0])
    # As the example was meant: with its own params, and without the recipe's choice of rows.
    spec = replace(bound.spec, params=dict(example.params), only={})
    signature = signature_of(bound.function, example.params, bound.shape)
    result = run_unit(replace(bound, spec=spec, signature=signature), batch, (0,))
    if result.failures:
        return result.failures[0].message
    got = result.values[0]
    return None if got == example.score else f"scored {got}, expected {example.score:g}"
