"""What runs the functions: built-ins that are quick and linear in this process, everything else in worker processes."""

import ast
import asyncio
from collections.abc import Sequence
from typing import Protocol

from rewards.batch import Batch, plan_units
from rewards.calling.adapters import Bound, bind
from rewards.calling.describe import FunctionInfo, describe, self_test_problem
from rewards.calling.targets import LoadError, is_builtin, source_file, split_target
from rewards.contract import FunctionSpec
from rewards.running.execute import run_sync_unit
from rewards.running.process import WorkerStartError
from rewards.scoring import FunctionScores, merge_units, score_here

SMALL_BATCH = 1024  # samples
SMALL_TEXT = 2**20  # characters; with less than that, the event loop is held up for milliseconds


class Engine(Protocol):
    """What the server needs of whatever runs the functions."""

    functions: tuple[FunctionInfo, ...]

    @property
    def workers_alive(self) -> int: ...
    @property
    def restarts(self) -> int:
        """Workers that were replaced since the start."""
        ...

    async def start(self) -> None: ...
    def problem(self) -> str | None: ...
    async def score(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, FunctionScores]: ...
    def abort(self) -> None: ...
    async def close(self) -> None: ...


def runs_inline(target: str) -> bool:
    """Whether a built-in says INLINE of itself. Read from its source: the import may cost seconds. Raises LoadError."""
    if not is_builtin(target):
        return False
    tree = ast.parse(source_file(split_target(target)[0]).read_bytes())
    assigned = (node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
    return any(
        node.value.value is True and isinstance(name, ast.Name) and name.id == "INLINE"
        for node in assigned
        if isinstance(node.value, ast.Constant)
        for name in node.targets
    )


class Inline:
    """The Engine of functions that cannot hang: there is no time limit here."""

    def __init__(self, specs: Sequence[FunctionSpec]) -> None:
        """Raises LoadError for functions that need a worker, and its time limit."""
        for spec in specs:
            if not runs_inline(spec.target):
                why = "can take long on some completions" if is_builtin(spec.target) else "is not built in"
                raise LoadError(f"{spec.name} ({spec.target}) {why}, so it needs a worker: set workers to 1")
        self.specs = tuple(specs)
        self.functions: tuple[FunctionInfo, ...] = ()
        self._bound: tuple[Bound, ...] = ()
        self._problem: str | None = "loading the functions"
        self.restarts = self.workers_alive = 0

    async def start(self) -> None:
        """Raises LoadError, or WorkerStartError for a failed self-test."""
        self._bound = await asyncio.to_thread(lambda: tuple(bind(spec) for spec in self.specs))
        self.functions = await asyncio.to_thread(lambda: tuple(describe(bound) for bound in self._bound))
        if problem := self_test_problem(self.functions):
            raise WorkerStartError(problem)
        self._problem = None

    def problem(self) -> str | None:
        return self._problem

    async def score(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, FunctionScores]:
        wanted = [bound for bound in self._bound if names is None or bound.spec.name in names]
        if _is_small(batch):
            return {bound.spec.name: score_at_once(bound, batch) for bound in wanted}
        return {bound.spec.name: await asyncio.to_thread(score_at_once, bound, batch) for bound in wanted}

    def abort(self) -> None:
        self._problem = "the reward server is stopping"

    async def close(self) -> None:
        self.abort()


def score_at_once(bound: Bound, batch: Batch) -> FunctionScores:
    """Samples of a per-sample function in one call; where that raises, a call for each, so that the blame is right."""
    if bound.granularity != "sample":
        return score_here(bound, batch)
    whole = batch.statuses is None and not bound.spec.only
    units = [tuple(range(len(batch)))] if whole else plan_units(batch, "batch", bound.spec.only)
    results = [(live, run_sync_unit(bound, batch if whole else batch.take(live), live)) for live in units if live]
    if any(failure.index is None for _, result in results for failure in result.failures):
        return score_here(bound, batch)
    if whole and results and not results[0][1].failures:  # nearly every batch is this one
        return FunctionScores(results[0][1].values, results[0][1].logs, [], frozenset())
    return merge_units(len(batch), results)


def _is_small(batch: Batch) -> bool:
    """Chats are not measured: they count as large."""
    if len(batch) > SMALL_BATCH or not all(isinstance(text, str) for text in batch.completions):
        return False
    return sum(map(len, batch.completions)) < SMALL_TEXT
