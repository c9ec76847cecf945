"""Which units a worker gets next: calls cut into jobs, short jobs put together, by the time that units have taken.

A message costs about a tenth of a millisecond, so one for each unit of a cheap function would be most of the work; a
large job of a slow function would leave the other workers idle.
"""

import asyncio
import itertools
import math
from collections.abc import Iterator

from rewards.calling.describe import FunctionInfo
from rewards.running.calls import Call
from rewards.running.jobs import NORMAL, Job
from rewards.running.process import WorkerProcess

LARGEST_JOB = 64  # async units
UNKNOWN_JOB, UNKNOWN_SHARE = 16, 0.25  # units, and share of what there is, of a function that has not run yet
LARGEST_MESSAGE = 1024  # units that are sent to a worker at once, for jobs that are put together
FIRST_SHARE = 0.75  # of what is left goes to all workers in equal jobs, until a job is short
WORTH_A_MESSAGE_S = 0.001  # of work
LONG_JOB_S = 0.05  # what stands behind a slow unit in its job waits for it, while other workers have nothing to do
PACE_MEMORY = 0.8  # weight of what was known before, when a job was timed
SHORTEST_UNIT_S = 1e-6


class Schedule:
    """The jobs that wait for a worker."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._jobs: asyncio.PriorityQueue[Job] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._pace: dict[str, float] = {}  # seconds per unit of sync functions, as measured

    def add(self, call: Call) -> None:
        """Queue the units of a call."""
        start = 0
        for size in self._sizes(call.function, len(call.units)):
            self._jobs.put_nowait(Job(NORMAL, next(self._numbers), call, range(start, start + size)))
            start += size

    def put_back(self, job: Job) -> None:
        """The place of a job in the queue is its own."""
        self._jobs.put_nowait(job)

    def timed(self, name: str, unit_s: float) -> None:
        """A unit of this function took so long, on average of a job."""
        unit_s = max(unit_s, SHORTEST_UNIT_S)
        self._pace[name] = unit_s + PACE_MEMORY * (self._pace.get(name, unit_s) - unit_s)

    async def next(self, worker: WorkerProcess) -> list[Job]:
        """Jobs for one message; none when the idle worker died, so that no unit is blamed for it."""
        if self._jobs.empty():
            first = await self._first(worker)
        else:
            first = self._jobs.get_nowait()
        if first is None:
            return []
        if not worker.usable:
            self.put_back(first)
            return []
        return [first, *self._companions(first)]

    async def _first(self, worker: WorkerProcess) -> Job | None:
        get = asyncio.create_task(self._jobs.get())
        exited = asyncio.create_task(worker.exited.wait())
        try:
            await asyncio.wait({get, exited}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            exited.cancel()
            get.cancel()  # does nothing to one that is done
        return get.result() if get.done() and not get.cancelled() else None

    def _companions(self, first: Job) -> Iterator[Job]:
        """More jobs for the same message, as long as all of them together are short, or run side by side."""
        room_s, units = WORTH_A_MESSAGE_S - self._expected_s(first), len(first.units)
        while not (first.alone or self._jobs.empty()):
            job = self._jobs.get_nowait()
            room_s, units = room_s - self._expected_s(job), units + len(job.units)
            other_kind = job.call.function.is_async != first.call.function.is_async
            if job.alone or other_kind or room_s < 0 or units > LARGEST_MESSAGE:
                self.put_back(job)
                return
            yield job

    def _sizes(self, function: FunctionInfo, units: int) -> Iterator[int]:
        """Large jobs, then ever smaller ones, so that messages are few and all workers end at about the same time.

        Source: factoring (Hummel, Schonberg, Flynn, CACM 35(8), 1992).
        """
        if function.is_async:  # units of a job run side by side
            least = most = min(LARGEST_JOB, math.ceil(units / self.workers))
        elif pace := self._pace.get(function.name):
            least, most = max(int(WORTH_A_MESSAGE_S / pace), 1), max(int(LONG_JOB_S / pace), 1)
        else:
            least, most = 1, min(UNKNOWN_JOB, math.ceil(units * UNKNOWN_SHARE / self.workers))
        while units:
            jobs, size = self.workers, max(min(math.ceil(units * FIRST_SHARE / self.workers), most), least)
            if units - jobs * size < jobs * least:  # the rest is not worth a round of its own
                jobs = min(jobs, math.ceil(units / least))
                size = math.ceil(units / jobs)
            for _ in range(min(jobs, math.ceil(units / size))):
                yield min(size, units)
                units -= min(size, units)

    def _expected_s(self, job: Job) -> float:
        if job.call.function.is_async:
            return 0.0
        return len(job.units) * self._pace.get(job.call.function.name, math.inf)
