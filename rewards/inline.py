"""Scoring in the server's own process, in a thread: no time limit, so for our built-ins only."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from rewards.adapters import Bound, bind
from rewards.batch import Batch
from rewards.contract import FunctionSpec
from rewards.describe import FunctionInfo, describe, self_test_problem
from rewards.process import WorkerStartError
from rewards.scoring import FunctionScores, score_here
from rewards.targets import LoadError, is_builtin


class Engine(Protocol):
    """What the server needs of whatever runs the functions."""

    functions: tuple[FunctionInfo, ...]

    async def start(self) -> None: ...
    def problem(self) -> str | None: ...
    async def score(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, FunctionScores]: ...
    def abort(self) -> None: ...
    async def close(self) -> None: ...


class Inline:
    """The Engine of `--workers 0`."""

    def __init__(self, specs: Sequence[FunctionSpec]) -> None:
        """Raises LoadError for functions of the user's: they need a worker, and its time limit."""
        for spec in specs:
            if not is_builtin(spec.target):
                raise LoadError(f"{spec.name} ({spec.target}) is not built in, so it needs a worker: set workers to 1")
        self.specs = tuple(specs)
        self.functions: tuple[FunctionInfo, ...] = ()
        self._bound: tuple[Bound, ...] = ()
        self._problem: str | None = "loading the functions"

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
        return {bound.spec.name: await asyncio.to_thread(score_here, bound, batch) for bound in wanted}

    def abort(self) -> None:
        self._problem = "the reward server is stopping"

    async def close(self) -> None:
        self.abort()
