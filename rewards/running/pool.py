"""A pool of worker processes with a time limit that holds: a unit that exceeds it is killed, the others go on.

A function's units are cut into jobs; each worker takes one message at a time, of one job or of several short ones.
When a worker is killed for a unit, or dies, the units that it still owed go back to the front of the queue.
"""

import asyncio
import itertools
from collections.abc import Collection, Sequence

from rewards.batch import Batch, plan_units
from rewards.calling.describe import FunctionInfo, self_test_problem
from rewards.contract import FunctionSpec
from rewards.running.calls import Call
from rewards.running.jobs import Job, run_jobs
from rewards.running.process import WorkerProcess, WorkerStartError, start_worker
from rewards.running.schedule import Schedule
from rewards.scoring import FunctionScores

RETRY_PAUSES_S = (0.0, 0.5, 2.0)  # before the attempts to replace a worker; later ones wait LONGEST_PAUSE_S
LONGEST_PAUSE_S = 5.0


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
        self._schedule = Schedule(workers)
        self._open: set[Call] = set()
        self._slots: list[asyncio.Task[None]] = []
        self._live: dict[int, WorkerProcess] = {}
        self._down: set[int] = set()
        self._problem: str | None = "starting the workers"
        self.restarts = 0

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
                    await attempt.result().closed()
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

    @property
    def workers_alive(self) -> int:
        return sum(worker.usable for worker in self._live.values())

    async def score(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, FunctionScores]:
        """Every function (or those named) over the batch. Failures are in the result; nothing is raised for them."""
        calls = [self._enqueue(f, batch) for f in self.functions if names is None or f.name in names]
        try:
            return {call.function.name: await call.done for call in calls}
        finally:
            for call in calls:  # when the client has gone, what was not begun is dropped
                call.done.cancel()

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

    def _enqueue(self, function: FunctionInfo, batch: Batch) -> Call:
        units = plan_units(batch, function.granularity, function.only)
        call = Call(function, batch, units, asyncio.get_running_loop().create_future())
        self._open.add(call)
        call.done.add_done_callback(lambda _: self._open.discard(call))
        self._schedule.add(call)
        if self._problem is not None:
            self._fail_open(self._problem)
        return call

    def _fail_open(self, reason: str) -> None:
        for call in list(self._open):
            call.fail_rest(reason)

    async def _start_worker(self) -> WorkerProcess:
        """One worker, with the same functions as all others: a file edited since the start would mix two rewards."""
        worker, functions = await start_worker(self.specs, self.hidden_env, self.start_timeout_s)
        problem = self_test_problem(functions)
        for old, new in zip(self.functions, functions, strict=False):
            if old.source_sha256 != new.source_sha256:
                problem = f"the source of {new.name} ({new.target}) changed while the server ran: restart the server"
        if problem:
            await worker.closed()
            raise WorkerStartError(problem)
        self.functions = functions
        return worker

    async def _serve(self, slot: int, worker: WorkerProcess) -> None:
        """Feed one worker; replace it when it has gone."""
        while True:
            if jobs := await self._schedule.next(worker):
                await self._run(worker, jobs)
            if not worker.usable:
                await worker.closed()
                worker = self._live[slot] = await self._replace(slot)

    async def _run(self, worker: WorkerProcess, jobs: Sequence[Job]) -> None:
        try:
            for job in await run_jobs(worker, jobs, self.timeout_s, self._schedule.timed):
                self._schedule.put_back(job)
        except Exception as error:  # a bug of ours: whoever waits must hear of it, and the slot must live on
            worker.kill()
            for job in jobs:
                job.call.fail_rest(f"the pool failed: {type(error).__name__}: {error}")

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
            self.restarts += 1
            return worker
        raise AssertionError("unreachable: the pauses never end")
