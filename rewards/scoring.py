"""From what each function gave to one reward per sample; and scoring in this process, without a server."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rewards.batch import Batch, Text, batch_problem, plan_units, samples_with
from rewards.calling.adapters import Bound, bind, missing_column
from rewards.calling.post_process import hook_batch, processed
from rewards.contract import ContractError, Failure, FunctionSpec, Granularity
from rewards.running.execute import UnitResult, run_unit

OnError = Literal["fail", "mask"]


@dataclass(frozen=True)
class FunctionScores:
    """One function over a whole batch. A sample is None where the function did not, or could not, score it."""

    values: list[float | None]
    logs: dict[str, list[Any]]
    failures: list[Failure]
    failed: frozenset[int]
    """Samples that are None because something went wrong, not because the function said "not mine"."""


@dataclass(frozen=True)
class ScoreResult:
    """Scores of a batch, in the batch's order."""

    components: dict[str, list[float | None]]
    rewards: list[float | None]
    """Weighted sum of the components that are not None, or what the post-process hook made of it. None: aborted, failed
    before it could be scored, or a function failed on the sample."""
    errors: list[Failure]
    logs: dict[str, list[Any]]
    """`function/key` -> one value per sample."""
    aborted: list[int]
    failed: list[int] = field(default_factory=list)
    """Samples whose generation failed: left out, like the aborted ones."""
    raw: list[float | None] | None = None
    """With a post-process hook: what it calls the raw rewards, for the logs."""


def merge_units(count: int, results: Iterable[tuple[Sequence[int], UnitResult]]) -> FunctionScores:
    """Put the units' results back in the batch's order."""
    scores = FunctionScores([None] * count, {}, [], frozenset())
    failed: set[int] = set()
    for indices, unit in results:
        for position, index in enumerate(indices):
            scores.values[index] = unit.values[position]
            for key, column in unit.logs.items():
                scores.logs.setdefault(key, [None] * count)[index] = column[position]
        for failure in unit.failures:
            scores.failures.append(failure)
            failed.update(indices if failure.index is None else (failure.index,))
    return FunctionScores(scores.values, scores.logs, scores.failures, frozenset(failed))


def combine(batch: Batch, weights: Mapping[str, float], scores: Mapping[str, FunctionScores]) -> ScoreResult:
    """Weighted totals. A sample on which one function failed has no total: a partial sum is a wrong number."""
    aborted, not_generated = samples_with("aborted", batch), samples_with("failed", batch)
    failed = frozenset().union(*(s.failed for s in scores.values()))
    rewards: list[float | None] = [None] * len(batch)
    errors = [failure for s in scores.values() for failure in s.failures]
    left_out = failed.union(aborted, not_generated)
    everything = [(weights[name], s.values) for name, s in scores.items()]
    # A function of weight 0 is there for the logs: its number is no score of a sample that nobody else scores.
    weighted = [(weight, values) for weight, values in everything if weight] or everything
    for index in range(len(batch)):
        if index in left_out:
            continue
        parts = [weight * v for weight, values in weighted if (v := values[index]) is not None]
        total = _total(parts)
        if parts and math.isfinite(total):
            rewards[index] = total
        else:
            if parts:
                message = f"the weighted total is not finite for sample {index}"
            else:
                message = f"no function scored sample {index}: {', '.join(scores)} gave None, which means 'not mine'"
            errors.append(Failure(function=None, index=index, message=message))
    return ScoreResult(
        components={name: s.values for name, s in scores.items()},
        rewards=rewards,
        errors=errors,
        logs={f"{name}/{key}": column for name, s in scores.items() for key, column in s.logs.items()},
        aborted=aborted,
        failed=not_generated,
    )


def _total(parts: Sequence[float]) -> float:
    try:
        return math.fsum(parts)
    except OverflowError:  # of a partial sum
        return math.inf


def input_problem(name: str, required: Iterable[str], granularity: Granularity, batch: Batch) -> Failure | None:
    """What the caller left out for this function, or None."""
    message = missing_column(name, required, batch.columns)
    if message is None and granularity == "group" and batch.group_ids is None:
        message = f"{name} scores whole groups: the batch needs group_ids"
    return Failure(function=name, index=None, message=message, kind="input") if message else None


class Scorer:
    """Runs functions in this process: for cheap ones, and for tests. There is no time limit here."""

    def __init__(
        self, specs: Sequence[FunctionSpec], on_error: OnError = "fail", post_process: FunctionSpec | None = None
    ) -> None:
        """Loads the functions, and the hook (post_process.hook_spec). Raises LoadError and PrepareError."""
        self.functions = [bind(spec) for spec in specs]
        self.hook = bind(post_process) if post_process else None
        self.on_error = on_error
        for function in self.functions:
            if function.prepare:
                function.prepare(**function.spec.params)

    def score(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        columns: Mapping[str, Sequence[Any]] | None = None,
        group_ids: Sequence[str | int] | None = None,
        statuses: Sequence[str] | None = None,
        evaluation: bool = False,
    ) -> ScoreResult:
        """Score one batch. Raises ContractError: on bad input always, on failures unless they are masked."""
        batch = Batch(
            prompts=prompts,
            completions=completions,
            columns=columns or {},
            group_ids=group_ids,
            statuses=statuses,
            evaluation=evaluation,
        )
        if problem := batch_problem(batch):
            raise ContractError([Failure(function=None, index=None, message=problem, kind="input")])
        for f in self.functions:
            if missing := input_problem(f.spec.name, f.required, f.granularity, batch):
                raise ContractError([missing])
        scores = {f.spec.name: score_here(f, batch) for f in self.functions}
        result = combine(batch, {f.spec.name: f.spec.weight for f in self.functions}, scores)
        if result.errors and self.on_error == "fail":
            raise ContractError(result.errors)
        if self.hook is None or evaluation:  # what a hook makes of rewards is for training only
            return result
        result = processed(batch, result, score_here(self.hook, hook_batch(batch, result)))
        if result.errors and self.on_error == "fail":
            raise ContractError(result.errors)
        return result


def score_here(bound: Bound, batch: Batch) -> FunctionScores:
    """One function over a batch, unit after unit, in the calling thread."""
    units = plan_units(batch, bound.granularity, bound.spec.only)
    return merge_units(len(batch), [(indices, run_unit(bound, batch.take(indices), indices)) for indices in units])
