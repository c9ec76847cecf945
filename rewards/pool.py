"""A pool of worker processes with a time limit that holds: a unit that exceeds it is killed, the others go on.

A function's units are cut into jobs; each worker takes one job at a time and answers unit by unit. When a worker is
killed for a unit, or dies, the units that it still owed go back to the front of the queue.
"""

import asyncio
import itertools
from collections.abc import Collection, Sequence

from rewards.batch import Batch, plan_units
from rewards.contract import FunctionSpec
from rewards.describe import FunctionInfo, self_test_problem
from rewards.execute import samples
from rewards.jobs import Job, Unit, run_job
from rewards.process import WorkerProcess, WorkerStartError, start_worker
from rewards.scoring import FunctionScores, merge_units

LARGEST_JOB = 64  # units; small enough to share, large enough that the messages cost nothing
JOBS_PER_WORKER = 4  # so that a slow job leaves the rest of a batch to others
RETRY_PAUSES_S = (0.0, 0.5, 2.0)  # before the attempts to replace a worker; later ones wait LONGEST_PAUSE_S
LONGEST_PAUSE_S = 5.0
URGENT, NORMAL = 0, 1


class Pool:
    """`await start()`, then `await score()` as often as needed, then `await close()`."""

    def __init__(
        self,
        specs: Sequence[FunctionSpec],
        *,
        workers: int,
        timeout_s: float,
        start_timeout_s: float = 120.0,
        hidden_env: Collection[str] = (),
    ) -> None:
        """`hidden_env`: variables that user code must not see."""
        self.specs, self.workers, self.timeout_s = tuple(specs), workers, timeout_s
        self.start_timeout_s, self.hidden_env = start_timeout_s, hidden_env
        self.functions: tuple[FunctionInfo, ...] = ()
        self._jobs: asyncio.PriorityQueue[Job] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._open: set[Unit] = set()
        self._slots: list[asyncio.Task[None]] = []
        self._live: dict[int, WorkerProcess] = {}
        self._down: set[int] = set()
        self._problem: str | None = "starting the workers"

    async def start(self) -> None:
        """Start all workers, side by side. Raises WorkerStartError."""
        attempts = [asyncio.create_task(self._start_worker()) for _ in range(self.workers)]
        try:
            started = await asyncio.gather(*attempts)
        except BaseException:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)
            for attempt in attempts:
                if not attempt.cancelled() and attempt.exception() is None:
                    attempt.result().close()
            raise
        self._live = dict(enumerate(started))
        self._problem = None
        self._slots = [asyncio.create_task(self._serve(n, worker)) for n, worker in self._live.items()]

    def problem(self) -> str | None:
        """Why nothing can be scored now, or None."""
        return self._problem

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._live.values()]

    async def score(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, FunctionScores]:
        """Every function (or those named) over the batch. Failures are in the result; nothing is raised for them."""
        wanted = [f for f in self.functions if names is None or f.name in names]
        units = {f.name: self._enqueue(f, batch) for f in wanted}
        await asyncio.gather(*(unit.done for each in units.values() for unit in each))
        return {
            name: merge_units(len(batch), [(unit.indices, unit.done.result()) for unit in each])
            for name, each in units.items()
        }

    def abort(self) -> None:
        """Kill the workers and fail what is under way, now. For signal handlers; close() is still due."""
        self._problem = "the reward server is stopping"
        for slot in self._slots:
            slot.cancel()
        for worker in self._live.values():
            worker.kill()
        self._fail_open(self._problem)

    async def close(self) -> None:
        self.abort()
        await asyncio.gather(*self._slots, return_exceptions=True)
        for worker in self._live.values():
            worker.close()
        exits = [asyncio.create_task(worker.exited.wait()) for worker in self._live.values()]
        if exits:
            await asyncio.wait(exits, timeout=1.0)

    def _enqueue(self, function: FunctionInfo, batch: Batch) -> list[Unit]:
        loop = asyncio.get_running_loop()
        units = [
            Unit(function.name, indices, batch.take(indices), loop.create_future())
            for indices in plan_units(batch, function.granularity, function.only)
        ]
        for unit in units:
            self._open.add(unit)
            unit.done.add_done_callback(lambda _, unit=unit: self._open.discard(unit))  # type: ignore[misc]
        # Async units of a job run side by side, so fewer and larger jobs are better there.
        shares = self.workers * (1 if function.is_async else JOBS_PER_WORKER)
        size = min(LARGEST_JOB, max(1, -(-len(units) // shares)))
        for start in range(0, len(units), size):
            self._put(units[start : start + size], NORMAL, concurrent=function.is_async)
        if self._problem is not None:
            self._fail_open(self._problem)
        return units

    def _put(self, units: list[Unit], priority: int, concurrent: bool) -> None:
        self._jobs.put_nowait(Job(priority, next(self._numbers), units, concurrent))

    def _fail_open(self, reason: str) -> None:
        for unit in list(self._open):
            unit.fail(f"{unit.function} could not score {samples(unit.indices)}: {reason}", "unavailable")

    async def _start_worker(self) -> WorkerProcess:
        """One worker, with the same functions as all others: a file edited since the start would mix two rewards."""
        worker, functions = await start_worker(self.specs, self.hidden_env, self.start_timeout_s)
        problem = self_test_problem(functions)
        for old, new in zip(self.functions, functions, strict=False):
            if old.source_sha256 != new.source_sha256:
                problem = f"the source of {new.name} ({new.target}) changed while the server ran: restart the server"
        if problem:
            worker.close()
            raise WorkerStartError(problem)
        self.functions = functions
        return worker

    async def _serve(self, slot: int, worker: WorkerProcess) -> None:
        """Feed one worker; replace it when it has gone."""
        while True:
            job = await self._next_job(worker)
            if job is not None:
                for units in await run_job(worker, job, self.timeout_s):
                    self._put(units, URGENT, job.concurrent)
            if not worker.usable:
                worker.close()
                worker = self._live[slot] = await self._replace(slot)

    async def _next_job(self, worker: WorkerProcess) -> Job | None:
        """The next job; None when the idle worker died, so that no unit is blamed for it."""
        get = asyncio.create_task(self._jobs.get())
        exited = asyncio.create_task(worker.exited.wait())
        try:
            await asyncio.wait({get, exited}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            exited.cancel()
            get.cancel()  # does nothing to one that is done
        if not get.done() or get.cancelled():
            return None
        job = get.result()
        if not worker.usable:
            self._put(job.units, URGENT, job.concurrent)
            return None
        return job

    async def _replace(self, slot: int) -> WorkerProcess:
        """A new worker, however long it takes. While no slot has one, requests fail instead of waiting."""
        for pause in itertools.chain(RETRY_PAUSES_S, itertools.repeat(LONGEST_PAUSE_S)):
            await asyncio.sleep(pause)
            try:
                worker = await self._start_worker()
            except WorkerStartError as error:
                self._down.add(slot)
                if len(self._down) == self.workers:
                    self._problem = f"no worker can be started: {error}"
                    self._fail_open(self._problem)
                continue
            self._down.discard(slot)
            self._problem = None
            return worker
        raise AssertionError("unreachable: the pauses never end")
