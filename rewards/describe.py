"""What a server says about a function, and the proof that the function works here: its self-test."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rewards.adapters import Bound
from rewards.batch import Batch
from rewards.contract import Example, Granularity
from rewards.execute import run_unit
from rewards.loading import source_sha256


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
    key: str | None
    params: Mapping[str, Any]
    required_columns: tuple[str, ...]
    only: Mapping[str, Sequence[Any]]
    is_async: bool
    source_sha256: str | None
    self_test: SelfTest

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_wire(raw: dict[str, Any]) -> "FunctionInfo":
        test, columns = SelfTest(**raw["self_test"]), tuple(raw["required_columns"])
        return FunctionInfo(**{**raw, "self_test": test, "required_columns": columns})


def describe(bound: Bound) -> FunctionInfo:
    """Runs the self-test, so it costs one call per example."""
    return FunctionInfo(
        name=bound.spec.name,
        target=bound.spec.target,
        weight=bound.spec.weight,
        granularity=bound.granularity,
        key=bound.spec.key,
        params=bound.spec.params,
        required_columns=bound.required,
        only=bound.spec.only,
        is_async=bound.signature.is_async,
        source_sha256=source_sha256(bound.function),
        self_test=run_self_test(bound),
    )


def self_test_problem(functions: Iterable[FunctionInfo]) -> str | None:
    """The first self-test that failed, in words, or None."""
    for function in functions:
        if function.self_test.passed is False:
            return f"the self-test of {function.name} ({function.target}) failed: {function.self_test.detail}"
    return None


def run_self_test(bound: Bound) -> SelfTest:
    """Score the right and the wrong example, each as a batch of one."""
    if bound.self_test is None:
        why = "not run with params: its examples are for the defaults" if bound.spec.params else "the function has none"
        return SelfTest(passed=None, detail=why)
    for label, example in zip(("right", "wrong"), bound.self_test, strict=True):
        problem = _example_problem(bound, example)
        if problem:
            return SelfTest(passed=False, detail=f"{label} example: {problem}")
    right, wrong = bound.self_test
    return SelfTest(passed=True, detail=f"right example {right.score:g}, wrong example {wrong.score:g}")


def _example_problem(bound: Bound, example: Example) -> str | None:
    columns = {name: [value] for name, value in example.columns.items()}
    batch = Batch(prompts=[example.prompt], completions=[example.completion], columns=columns, group_ids=[0])
    result = run_unit(bound, batch, (0,))
    if result.failures:
        return result.failures[0].message
    got = result.values[0]
    return None if got == example.score else f"scored {got}, expected {example.score:g}"
