"""The contract test that fits a recipe: which functions, on which rows."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.data import DataError
from orchestrator.data.recipe import training_rows
from orchestrator.facts import Facts
from orchestrator.schema import PostProcessConfig, RewardFunctionConfig, RunConfig
from rewards.calling.post_process import hook_spec
from rewards.calling.signature import Signature
from rewards.checking.made_up import Row
from rewards.checking.trial import Trial
from rewards.contract import FunctionSpec, SpecError

NUM_FIRST = 3
"""Rows from the top of the data."""
NUM_MORE = 5
"""Rows that may join them for what they alone show: a value that functions are chosen by, a column without a value."""
BUDGET_S = 240.0
"""Less than the deadline of a child: the rest is for its start and an orderly end."""


def trial_of(run: RunConfig, facts: Facts) -> Trial | None:
    """None where there is nothing to call, or no row to call it with; the offline rules say which."""
    specs = [spec_of(function) for function in run.reward.functions if _can_be_tried(function, facts)]
    if run.reward.kind == "external" or isinstance(facts.data, str) or not specs:
        return None
    try:
        rows = training_rows(run)
    except DataError:
        return None  # the file has changed since it was described
    chosen = _telling(rows, {column for spec in specs for column in spec.only})
    return Trial(
        specs=tuple(specs),
        rows=tuple(
            Row(label=f"training row {index}", prompt=row["prompt"], columns=_without_prompt(row))
            for index, row in chosen
        ),
        group_size=max(1, run.limits.generations),
        timeout_s=run.reward.timeout_s,
        budget_s=BUDGET_S,
        hook=_hook(run.reward.post_process, facts),
    )


def _hook(hook: PostProcessConfig, facts: Facts) -> FunctionSpec | None:
    """None where there is none, or where RWD003 has already said why it cannot be used."""
    return hook_spec(hook.target, hook.params) if isinstance(facts.hook_signature, Signature) else None


def spec_of(function: RewardFunctionConfig) -> FunctionSpec:
    """The function as the reward server would take it. Raises SpecError."""
    return FunctionSpec(
        name=function.name,
        target=function.target,
        weight=function.weight,
        granularity=function.granularity,  # type: ignore[arg-type]  # CFG004 and FunctionSpec compare it
        shape=function.shape,  # type: ignore[arg-type]
        key=function.key,
        eval_key=function.eval_key,
        params=function.params,
        only=function.only,
    )


def _can_be_tried(function: RewardFunctionConfig, facts: Facts) -> bool:
    """False where a rule has already said why not: no target, no such file (RWD002, RWD003), a bad name (RWD101)."""
    try:
        spec_of(function)
    except SpecError:
        return False
    return not isinstance(facts.signatures.get(function.target, ""), str)


def _telling(rows: Sequence[Mapping[str, Any]], telling: Collection[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(place, row) of the first rows, then of the first ones with another value in a `telling` column or without one in
    any column."""
    seen: set[tuple[str, str]] = set()
    more = 0
    for index, row in enumerate(rows):
        traits = {(name, str(value)) for name, value in row.items() if value is None or name in telling}
        if index < NUM_FIRST:
            yield index, row
        elif more < NUM_MORE and not traits <= seen:
            more += 1
            yield index, row
        seen |= traits


def _without_prompt(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "prompt"}
