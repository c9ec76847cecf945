"""The Engine of a server: functions that may run inline do so, whatever the number of workers; a pool runs the rest."""

import asyncio
from collections.abc import Collection, Sequence

from rewards.batch import Batch
from rewards.calling.describe import FunctionInfo
from rewards.contract import FunctionSpec
from rewards.running.inline import Engine, Inline, runs_inline
from rewards.running.pool import Pool
from rewards.scoring import FunctionScores


def build_engine(
    specs: Sequence[FunctionSpec],
    *,
    workers: int,
    timeout_s: float,
    start_timeout_s: float = 120.0,
    hidden_env: Collection[str] = (),
) -> Engine:
    """`workers` 0: inline only. Raises LoadError for a function that then has nowhere to run."""
    quick = [spec for spec in specs if workers == 0 or runs_inline(spec.target)]
    rest = [spec for spec in specs if spec not in quick]
    if not rest:
        return Inline(quick)
    pool = Pool(rest, workers=workers, timeout_s=timeout_s, start_timeout_s=start_timeout_s, hidden_env=hidden_env)
    return Split(Inline(quick), pool, [spec.name for spec in specs]) if quick else pool


class Split:
    """Two Engines as one, with the functions in the order in which they were named."""

    def __init__(self, inline: Inline, pool: Pool, order: Sequence[str]) -> None:
        self.inline, self.pool, self.order = inline, pool, list(order)
        self.functions: tuple[FunctionInfo, ...] = ()

    @property
    def restarts(self) -> int:
        return self.pool.restarts

    @property
    def workers_alive(self) -> int:
        return self.pool.workers_alive

    async def start(self) -> None:
        """Raises what either raises."""
        await self.inline.start()
        await self.pool.start()
        both = (*self.inline.functions, *self.pool.functions)
        self.functions = tuple(sorted(both, key=lambda function: self.order.index(function.name)))

    def problem(self) -> str | None:
        return self.pool.problem() or self.inline.problem()

    async def score(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, FunctionScores]:
        async with asyncio.TaskGroup() as group:  # the pool first: its workers begin while we are busy here
            parts = [group.create_task(engine.score(batch, names)) for engine in (self.pool, self.inline)]
        scores = {name: one for part in parts for name, one in part.result().items()}
        return {name: scores[name] for name in self.order if name in scores}

    def abort(self) -> None:
        self.inline.abort()
        self.pool.abort()

    async def close(self) -> None:
        await self.inline.close()
        await self.pool.close()
