"""The contract test of reward functions: each is called as a run would call it, with made-up completions of real rows.

Functions run in worker processes with the run's time limit, so nothing here can be blocked, or ended, by user code.
`python -P -m rewards.checking.check` reads a list of Trials from stdin and writes the issues of each to stdout, both as
JSON.
"""

import asyncio
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from rewards.calling.post_process import hook_batch, processed
from rewards.checking.made_up import gold_of, made_up, quoted
from rewards.checking.questions import Questions, wants_ids
from rewards.checking.trial import LONGEST_WAIT_S, Issue, Trial
from rewards.contract import FunctionSpec
from rewards.running.pool import Pool
from rewards.running.process import WorkerStartError
from rewards.running.worker import die_with_parent, private_pipes
from rewards.scoring import FunctionScores, combine, input_problem

SIDE_BY_SIDE = 2  # functions under test; each has a worker, which may be importing torch
SAME = 1e-6  # relative; a model's score may differ in its last bits from call to call

Scores = dict[tuple[str, str], float | None]
"""(row, completion) -> reward."""


async def contract_test(trial: Trial) -> list[Issue]:
    """Every function by itself; then whether all of them together leave a sample without any reward."""
    deadline = asyncio.get_running_loop().time() + trial.budget_s
    slots = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(spec: FunctionSpec) -> tuple[list[Issue], Scores]:
        async with slots:
            return await _Examination(trial, spec).run(deadline)

    examined = await asyncio.gather(*(one(spec) for spec in trial.specs))
    issues = [issue for found, _ in examined for issue in found]
    scores = [scores for _, scores in examined]
    if not all(scores):
        return issues
    hooked = await _hook_issues(trial, trial.hook, scores, deadline) if trial.hook else []
    return [*issues, *_unscored(scores), *hooked]


async def _hook_issues(trial: Trial, hook: FunctionSpec, scores: Sequence[Scores], deadline: float) -> list[Issue]:
    """The post-process hook over what the functions gave to the same samples."""
    samples = made_up(trial.rows, trial.group_size, completion_ids=wants_ids(hook))
    parts = {
        spec.name: FunctionScores([given.get(key) for key in samples.keys], {}, [], frozenset())
        for spec, given in zip(trial.specs, scores, strict=True)
    }
    totals = combine(samples.batch, {spec.name: spec.weight for spec in trial.specs}, parts)
    limit_s = min(trial.timeout_s, LONGEST_WAIT_S)
    pool = Pool([hook], workers=1, timeout_s=limit_s, start_timeout_s=trial.budget_s / 2)
    try:
        async with asyncio.timeout_at(deadline):
            await pool.start()
            given = await pool.score(hook_batch(samples.batch, totals))
    except WorkerStartError as error:
        return [Issue(kind="load", function=hook.name, message=str(error))]
    except TimeoutError:
        return [Issue(kind="timeout", function=hook.name, message=f"{hook.name} was not done with the test")]
    finally:
        await pool.close()
    failures = processed(samples.batch, totals, given[hook.name]).errors[len(totals.errors) :]
    return [
        Issue(kind=failure.kind, function=hook.name, message=failure.message, value=failure.value or "")
        for failure in failures[:1]
    ]


class _Examination:
    """One function, in a worker of its own: one that cannot be loaded hides nothing about the others."""

    def __init__(self, trial: Trial, spec: FunctionSpec) -> None:
        self.spec, self.group_size, self.budget_s = spec, trial.group_size, trial.budget_s
        self.samples = made_up(trial.rows, trial.group_size, completion_ids=wants_ids(spec))
        limit_s = min(trial.timeout_s, LONGEST_WAIT_S)
        self.pool = Pool([spec], workers=1, timeout_s=limit_s, start_timeout_s=trial.budget_s / 2)
        has_gold = any(gold_of(row) is not None for row in trial.rows)
        self.questions = Questions(self.pool, spec, self.samples, has_gold=has_gold)

    async def run(self, deadline: float) -> tuple[list[Issue], Scores]:
        """Issues, and the scores; no scores where the function did not work. `deadline` is on the loop's clock."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.pool.start()
                return await self._questions()
        except WorkerStartError as error:
            return [self.questions.issue("load", str(error))], {}
        except TimeoutError:
            message = f"{self.spec.name} was not done with the test after {self.budget_s:g} s"
            return [self.questions.issue("timeout", message)], {}
        finally:
            await self.pool.close()

    async def _questions(self) -> tuple[list[Issue], Scores]:
        function = self.pool.functions[0]
        missing = input_problem(function.name, function.required_columns, function.granularity, self.samples.batch)
        if missing:
            return [self.questions.issue(missing.kind, missing.message)], {}
        # One group alone comes first: of two failures, the one on fewer samples is easier to read.
        for count in (self.group_size, len(self.samples.batch)):
            scores = await self.questions.score(self.samples.prefix(count))
            if scores.failures:
                return await self.questions.failed(scores.failures, count), {}
        again = await self.questions.score(self.samples.batch)
        if again.failures:
            return await self.questions.failed(again.failures, len(self.samples.batch)), {}
        if self.spec.eval_key is not None:
            heldout = await self.questions.score(replace(self.samples.batch, evaluation=True))
            if heldout.failures:
                first = heldout.failures[0]
                words = f"{first.message} (of held-out rows, by eval_key {self.spec.eval_key!r})"
                return [self.questions.issue(first.kind, words, value=first.value or "")], {}
        issues = [*self._unsteady(scores.values, again.values), *self._flat(scores.values)]
        return issues, dict(zip(self.samples.keys, scores.values, strict=True))

    def _unsteady(self, first: Sequence[float | None], second: Sequence[float | None]) -> list[Issue]:
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            if (one is None) != (other is None) or not math.isclose(one or 0.0, other or 0.0, rel_tol=SAME):
                words = f"{self.spec.name} gave {_shown(one)}, and asked again with the same batch {_shown(other)}"
                return [self.questions.issue("unsteady", words, self.samples.labels[index])]
        return []

    def _flat(self, values: Sequence[float | None]) -> list[Issue]:
        given = [value for value in values if value is not None]
        if len(given) < 2 or max(given) > min(given) or not self.spec.weight:
            return []
        return [self.questions.issue("flat", f"{self.spec.name} gave {given[0]:g} to all {len(given)} completions")]


def _unscored(examined: Sequence[Scores]) -> list[Issue]:
    """Samples that every function calls "not mine": a run has no reward for them."""
    keys = dict.fromkeys(key for scores in examined for key in scores)
    missed = dict.fromkeys(key for key in keys if all(scores.get(key) is None for scores in examined))
    if not missed:
        return []
    rows = dict.fromkeys(row for row, _ in missed)
    whole = [row for row in rows if all(key in missed for key in keys if key[0] == row)]
    words = f"no function scores {len(missed)} of {len(keys)} samples (None means 'not mine')"
    words += f", and none at all of {', '.join(whole)}" if whole else ""
    row, completion = next(iter(missed))
    return [
        Issue(
            kind="unscored",
            function=None,
            message=words,
            sample=f"{row}, completion {quoted(completion)}",
            every_sample=len(missed) == len(keys),
        )
    ]


def _shown(value: float | None) -> str:
    return "None" if value is None else f"{value:g}"


def main() -> int:
    requests, answers = private_pipes()
    die_with_parent()
    trials = [Trial.from_wire(raw) for raw in json.loads(requests.read())]
    found = [asyncio.run(contract_test(trial)) for trial in trials]
    answers.write(json.dumps([[asdict(issue) for issue in issues] for issues in found]).encode())
    answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
