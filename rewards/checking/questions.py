"""What the contract test asks one function, and its failures as issues that name the sample."""

from collections.abc import Sequence
from dataclasses import replace

from rewards.batch import Batch
from rewards.calling.signature import read_signature
from rewards.calling.targets import LoadError
from rewards.checking.made_up import MadeUp
from rewards.checking.trial import Issue, IssueKind
from rewards.contract import Failure, FailureKind, FunctionSpec
from rewards.running.pool import Pool
from rewards.scoring import FunctionScores


class Questions:
    """Asks one function in a started pool about made-up samples."""

    def __init__(self, pool: Pool, spec: FunctionSpec, samples: MadeUp, *, has_gold: bool) -> None:
        self.pool, self.spec, self.samples, self.has_gold = pool, spec, samples, has_gold

    async def score(self, batch: Batch) -> FunctionScores:
        return (await self.pool.score(batch))[self.spec.name]

    async def failed(self, failures: Sequence[Failure], count: int) -> list[Issue]:
        """One issue per kind of failure among the first `count` samples, with the sample that it takes."""
        by_kind: dict[FailureKind, list[Failure]] = {}
        for failure in failures:
            by_kind.setdefault(failure.kind, []).append(failure)
        return [await self._failed_so(kind, same, count) for kind, same in by_kind.items()]

    def issue(self, kind: IssueKind, message: str, sample: str = "", value: str = "") -> Issue:
        return Issue(
            kind=kind,
            function=self.spec.name,
            message=message,
            sample=sample,
            value=value,
            has_gold=self.has_gold,
        )

    async def _failed_so(self, kind: FailureKind, failures: Sequence[Failure], count: int) -> Issue:
        first, sample = failures[0], ""
        words = first.message + (f" (and on {len(failures) - 1} more)" if len(failures) > 1 else "")
        if first.index is not None:
            sample = self.samples.labels[first.index]
        elif kind in ("exception", "timeout", "crash"):
            fewest = await self._fewest(count)
            sample = self.samples.labels[fewest - 1]
            words += f"; sample {fewest - 1} is the first that does it"
        return replace(self.issue(kind, words, sample, first.value or ""), exception=first.exception)

    async def _fewest(self, count: int) -> int:
        """How many samples, counted from the first, make it fail; by bisection, for each try may take the limit."""
        low, high = 1, count
        while low < high:
            middle = (low + high) // 2
            if (await self.score(self.samples.prefix(middle))).failures:
                high = middle
            else:
                low = middle + 1
        return high


def wants_ids(spec: FunctionSpec) -> bool:
    """As in a run: token ids are sent to a function that names them, or that is called with samples."""
    try:
        return read_signature(spec.target, spec.params, spec.shape).wants_completion_ids
    except LoadError:
        return False  # the worker will say what is wrong
