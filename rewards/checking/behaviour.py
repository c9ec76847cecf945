"""How a function behaves when it is asked more than once: steadiness, order, units, speed, the event loop."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from rewards.batch import Batch, plan_units
from rewards.calling.shapes import CONVENTIONS
from rewards.checking.judging import Tried
from rewards.checking.order import first_difference, put_back, rearranged, shifted, shuffled
from rewards.checking.proofs import Proof
from rewards.contract import FunctionSpec, Granularity
from rewards.running.pool import Pool

MOST_UNITS = 12  # asked one by one
AFFORDABLE_S = 2.0  # for each further pass over the samples; slow functions are asked about fewer
SIDE_BY_SIDE = 4
ORDER_FIX = "the reward must belong to the completion, not to its place or to what came before"
TELLING_S = 0.02  # a call that is quicker says nothing about what it blocks


class _FailedAgainError(Exception):
    """A call with samples that it had scored before."""


@dataclass
class Behaviour:
    """Asks a function that has kept its contract. `granularity`: what was found out, None: as it was."""

    pool: Pool
    spec: FunctionSpec
    tried: Tried
    group_size: int
    seconds: float
    """What the first pass over all samples took."""
    granularity: Granularity | None = None
    alone: list[float | None] | None = None

    def __post_init__(self) -> None:
        self.info = self.pool.functions[0]
        total = len(self.tried.samples.batch)
        groups = max(1, int(total * min(1.0, AFFORDABLE_S / max(self.seconds, 1e-3))) // self.group_size)
        self.batch = self.tried.samples.prefix(min(total, groups * self.group_size))
        self.first = self.tried.scores.values[: len(self.batch)]

    async def proofs(self) -> AsyncIterator[Proof]:
        """Ends with the failure where one call more does not work."""
        try:
            async for proof in self._all():
                yield proof
        except _FailedAgainError as error:
            message = f"it worked, and called once more it failed: {error}"
            yield Proof(name="again", level="error", message=message)

    async def _all(self) -> AsyncIterator[Proof]:
        if len(self.batch) < len(self.tried.samples.batch) and self.info.granularity == "batch":
            self.first = await self._score(self.batch)  # a batch function may answer otherwise to fewer
        yield self._steady(await self._score(self.batch))
        self.alone = await self._each_alone() if self.info.granularity != "sample" else None
        yield await self._order()
        times: list[float] = []
        async for proof in self._one_by_one(times):
            yield proof
        yield self._latency(times)
        if self.info.is_async:
            yield await self._loop()

    async def _score(self, batch: Batch, pool: Pool | None = None) -> list[float | None]:
        scores = (await (pool or self.pool).score(batch))[self.spec.name]
        if scores.failures:
            raise _FailedAgainError(scores.failures[0].message)
        return scores.values

    def _steady(self, again: Sequence[float | None]) -> Proof:
        at = first_difference(self.first, again)
        if at is None:
            return Proof(name="deterministic", level="ok", message=f"twice the same for {len(again)} completions")
        message = f"{_shown(self.first[at])}, and asked again with the same batch {_shown(again[at])}"
        fix = "seed what is random; sampled judges add noise to every advantage"
        return Proof(name="deterministic", level="warning", message=message, sample=self._label(at), fix=fix)

    async def _order(self) -> Proof:
        """Shuffled, and each sample alone: one that sorts, or turns its list round, gives credit to the wrong ones."""
        order = shuffled(len(self.batch), self.group_size)
        second = await self._score(self.batch.take(order))
        if self.info.granularity != "sample" and self.alone is not None:
            together = await self._score(self.batch.take(range(len(self.alone))))
            at = first_difference(self.alone, together)
            if at is not None and rearranged(self.alone, together):
                words = f"{_shown(together[at])} for what gets {_shown(self.alone[at])} alone"
                return self._misplaced(f"{words}: the rewards of a batch go to other samples than they belong to", at)
        values = put_back(second, order)
        at = first_difference(self.first, values)
        if at is None:
            return Proof(name="order", level="ok", message="the same scores when the batch is shuffled")
        message = f"{_shown(self.first[at])}, and {_shown(values[at])} when the batch is shuffled"
        moved = shifted(self.first, second, order, self.group_size)
        if moved or self.info.granularity == "sample":
            return self._misplaced(message + (f": rewards are {moved}" if moved else ""), at)
        return Proof(name="order", level="warning", message=message, sample=self._label(at), fix=ORDER_FIX)

    def _misplaced(self, message: str, at: int) -> Proof:
        return Proof(name="order", level="error", message=message, sample=self._label(at), fix=ORDER_FIX)

    async def _each_alone(self) -> list[float | None] | None:
        """Scores of the first samples, one call for each; None where it cannot be asked so, or takes too long."""
        count = min(len(self.batch), max(1, MOST_UNITS // self.group_size) * self.group_size)
        ends, values = time.monotonic() + AFFORDABLE_S, []
        for sample in range(count):
            found = await self._tried(self.batch.take([sample]))
            if found is None or time.monotonic() > ends:
                return None
            values += found
        return values

    async def _tried(self, batch: Batch) -> list[float | None] | None:
        """None where it fails: a function that compares samples may rightly want whole groups."""
        scores = (await self.pool.score(batch))[self.spec.name]
        return None if scores.failures else scores.values

    async def _one_by_one(self, times: list[float]) -> AsyncIterator[Proof]:
        """Times of single units; and for a function that gets whole batches, whether smaller units would do."""
        units = plan_units(self.batch, self.info.granularity, self.spec.only)
        for unit in units[:MOST_UNITS] if self.info.granularity != "batch" else units * 3:
            times.append(await self._timed(self.batch.take(unit)))
        if self.spec.granularity is not None or self.info.granularity != "batch":
            return
        possible = CONVENTIONS[self.info.shape].granularities
        smaller_ones: tuple[Granularity, ...] = ("sample", "group")
        for smaller in smaller_ones:
            if smaller in possible and await self._same_in(smaller):
                self.granularity = smaller
                message = f"each {smaller} scored alone gets the same: granularity {smaller} keeps time limits and "
                yield Proof(name="granularity", level="note", message=message + "failures from the rest of the batch")
                return
        message = "scores depend on the whole batch: a time limit or a failure hits all of it"
        yield Proof(name="granularity", level="note", message=message)

    async def _same_in(self, smaller: Granularity) -> bool:
        if smaller == "sample":
            alone = self.alone
            return alone is not None and first_difference(self.first[: len(alone)], alone) is None
        ends = time.monotonic() + AFFORDABLE_S
        for number, unit in enumerate(plan_units(self.batch, smaller, self.spec.only)[:MOST_UNITS]):
            if number >= SIDE_BY_SIDE and time.monotonic() > ends:
                break
            values = await self._tried(self.batch.take(unit))
            if values is None or first_difference([self.first[i] for i in unit], values) is not None:
                return False
        return True

    async def _timed(self, batch: Batch) -> float:
        began = time.perf_counter()
        await self._score(batch)
        return time.perf_counter() - began

    def _latency(self, times: Sequence[float]) -> Proof:
        limit, longest = self.pool.timeout_s, max(times)
        unit = self.info.granularity if self.info.granularity != "batch" else f"batch of {len(self.batch)}"
        words = f"mean {_ms(fmean(times))}, longest {_ms(longest)} for a {unit}; the limit is {limit:g} s"
        if longest > limit / 2:
            fix = "make it quicker, or raise the limit (--timeout-s, `reward.timeout_s`): load doubles such times"
            return Proof(name="latency", level="warning", message=words, fix=fix)
        return Proof(name="latency", level="ok", message=words)

    async def _loop(self) -> Proof:
        """Async units of one message run side by side on the worker's loop: those that block it run one by one."""
        possible = CONVENTIONS[self.info.shape].granularities
        unit: Granularity = "sample" if "sample" in possible else "group"
        some = self.batch.take(range(min(len(self.batch), SIDE_BY_SIDE * (1 if unit == "sample" else self.group_size))))
        pool = Pool([replace(self.spec, granularity=unit)], workers=1, timeout_s=self.pool.timeout_s)
        try:
            await pool.start()
            units = plan_units(some, unit, self.spec.only)
            alone = [await self._timed_in(pool, some.take(one)) for one in units]
            together = await self._timed_in(pool, some)
        finally:
            await pool.close()
        if max(alone) < TELLING_S or len(units) < 2:
            return Proof(name="event loop", level="ok", message="async; too quick to tell whether it blocks")
        words = f"{len(units)} calls side by side took {_ms(together)}, one after another {_ms(sum(alone))}"
        if together > 0.8 * sum(alone):
            fix = "use an async client inside, or a plain `def`: workers run those side by side"
            return Proof(name="event loop", level="note", message=f"async, but it blocks the loop: {words}", fix=fix)
        return Proof(name="event loop", level="ok", message=f"async, and lets others run: {words}")

    async def _timed_in(self, pool: Pool, batch: Batch) -> float:
        began = time.perf_counter()
        await self._score(batch, pool)
        return time.perf_counter() - began

    def _label(self, at: int) -> str:
        return self.tried.samples.labels[at]


def _shown(value: float | None) -> str:
    return "None" if value is None else f"{value:g}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
