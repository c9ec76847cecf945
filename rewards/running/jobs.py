"""What one worker does at a time: settle what it answers, find who is to blame when it does not, say what to redo."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from rewards.running.calls import Call
from rewards.running.execute import samples, timeout_message
from rewards.running.process import WorkerDiedError, WorkerProcess
from rewards.running.progress import BETWEEN_UNITS, Running

BEGIN_LIMIT_S = 30.0  # an idle worker decodes its message in this time, however large
ASYNC_GRACE_S = 1.0  # a worker's event loop ends late units itself; only one that is blocked needs us
ALREADY_SENT_S = 0.01  # a reply that is in the pipe when the limit strikes still counts
TRIES = 2  # a unit that was running when its worker died gets one more

URGENT, NORMAL = 0, 1

Timed = Callable[[str, float], None]
"""Hears the name of a function, and how many seconds one of its units took."""

_messages = itertools.count()


@dataclass(order=True)
class Job:
    """Units of one call, for one worker. Ordered by priority, then by number."""

    priority: int
    number: int
    call: Call = field(compare=False)
    units: Sequence[int] = field(compare=False)
    alone: bool = field(default=False, compare=False)
    """Its single unit is under suspicion: nothing else shares the worker with it."""
    crashes: int = field(default=0, compare=False)
    """How often a worker died under that unit."""


class Message:
    """The units of some jobs, all of sync functions or all of async ones, while one worker has them."""

    def __init__(self, jobs: Sequence[Job], limit_s: float) -> None:
        self.number, self.limit_s, self.sent = next(_messages), limit_s, time.monotonic()
        self.jobs = [job for job in jobs if not job.call.done.done()]
        self.concurrent = any(job.call.function.is_async for job in self.jobs)
        self._first = list(itertools.accumulate((len(job.units) for job in self.jobs), initial=0))
        self.waiting: dict[int, tuple[int, int]] = dict(
            enumerate((at, unit) for at, job in enumerate(self.jobs) for unit in job.units)
        )
        """Number of a unit in the message -> position of its job, number of the unit in the call."""

    def to_wire(self) -> dict[str, Any]:
        return {"message": self.number, "limit_s": self.limit_s, "parts": [_part(job) for job in self.jobs]}

    def settle(self, reply: dict[str, Any], timed: Timed) -> None:
        """Raises WorkerDiedError for a reply that answers nothing of this message, and then keeps nothing of it."""
        try:
            if reply["message"] != self.number:
                raise ValueError(f"it answers message {reply['message']}")
            first, job, units = self._first[reply["part"]], self.jobs[reply["part"]], reply["units"]
            numbers = {first + position for position in units}
            known = min(units) >= 0 and max(units) < len(job.units) and numbers <= self.waiting.keys()
            if not known or len(numbers) != len(units):
                raise ValueError("it names units that it does not owe")
            job.call.settle([job.units[position] for position in units], reply)
            seconds = None if reply["seconds"] is None else float(reply["seconds"])
        except Exception as error:  # user code has written to our pipe, in whatever form
            raise WorkerDiedError(f"it sent a reply that cannot be its own ({type(error).__name__}: {error})") from None
        for number in numbers:
            del self.waiting[number]
        if seconds is not None:
            timed(job.call.function.name, seconds / len(job.units))

    def deadline(self, running: Running) -> float:
        """Until when nothing is wrong, on the clock of time.monotonic()."""
        if running.message != self.number:
            return self.sent + BEGIN_LIMIT_S
        blocked = running.since + self.limit_s
        if not self.concurrent:
            return blocked
        together = self.sent + self.limit_s + ASYNC_GRACE_S
        return together if running.unit == BETWEEN_UNITS else min(blocked, together)

    def suspects(self, running: Running, now: float) -> list[int]:
        """The unit that the worker was in, or those that may have been it."""
        known = running.message == self.number and running.unit in self.waiting
        if not self.concurrent:
            return [running.unit if known else min(self.waiting)]
        # A step that has just begun does not block the event loop: that some unit is late is another's fault.
        blocking = known and now - running.since >= min(self.limit_s, ASYNC_GRACE_S)
        return [running.unit] if blocking else list(self.waiting)

    def after_timeout(self, suspects: Sequence[int]) -> list[Job]:
        """Fails the unit that took too long; returns what is to be queued again."""
        if len(suspects) > 1:  # one of them blocks the event loop: alone, each shows whether it is the one
            return self._again(suspects)
        call, unit = self._take(suspects[0])
        call.fail(unit, timeout_message(call.function.name, call.units[unit], self.limit_s), "timeout")
        return self._again()

    def after_death(self, suspects: Sequence[int], reason: str) -> list[Job]:
        """Fails a unit that kills every worker; returns what is to be queued again."""
        for number in suspects:
            if self.jobs[self.waiting[number][0]].crashes + 1 >= TRIES:
                call, unit = self._take(number)
                what = f"{call.function.name} brought its worker down on {samples(call.units[unit])}"
                call.fail(unit, f"{what}: {reason}", "crash")
        return self._again([number for number in suspects if number in self.waiting], crashes=1)

    def _take(self, number: int) -> tuple[Call, int]:
        at, unit = self.waiting.pop(number)
        return self.jobs[at].call, unit

    def _again(self, suspects: Iterable[int] = (), crashes: int = 0) -> list[Job]:
        """Suspects alone, so that nothing else is lost when it happens again; then the others, together."""
        jobs = []
        for number in suspects:
            at, unit = self.waiting.pop(number)
            job = self.jobs[at]
            jobs.append(replace(job, priority=URGENT, units=[unit], alone=True, crashes=job.crashes + crashes))
        for at, group in itertools.groupby(self.waiting.values(), key=itemgetter(0)):
            jobs.append(replace(self.jobs[at], priority=URGENT, units=[unit for _, unit in group]))
        return jobs


async def run_jobs(worker: WorkerProcess, jobs: Sequence[Job], limit_s: float, timed: Timed) -> list[Job]:
    """Run the jobs' open units. Returns jobs for the queue: what a killed or dead worker still owed.

    Does not raise. The worker is not usable any more where a unit exceeded its limit. `timed` hears what parts took.
    """
    message = Message(jobs, limit_s)
    if not message.waiting:
        return []
    try:
        worker.send(message.to_wire())
        await _collect(worker, message, timed)
    except _LateError as late:
        worker.kill()
        return message.after_timeout(late.suspects)
    except Exception as death:  # WorkerDiedError; anything else must not take the units with it either
        worker.kill()
        suspects = message.suspects(worker.progress.read(), time.monotonic())
        reason = str(death) if isinstance(death, WorkerDiedError) else f"{type(death).__name__}: {death}"
        return message.after_death(suspects, reason)
    return []


class _LateError(Exception):
    def __init__(self, suspects: Sequence[int]) -> None:
        self.suspects = suspects


async def _collect(worker: WorkerProcess, message: Message, timed: Timed) -> None:
    """Settle units as replies arrive. What the worker is at is believed when it is read twice."""
    seen = worker.progress.read()
    while message.waiting:
        # Not longer than the limit: a worker that was seen before it began may be at its first unit since then.
        left_s = min(max(message.deadline(seen) - time.monotonic(), 0.0), message.limit_s)
        try:
            reply = await worker.receive(left_s + ALREADY_SENT_S)
        except TimeoutError:
            running, now = worker.progress.read(), time.monotonic()
            if running == seen and now > message.deadline(running):
                if running.message != message.number:
                    raise WorkerDiedError(f"the worker did not take its job within {BEGIN_LIMIT_S:g} s") from None
                raise _LateError(message.suspects(running, now)) from None
            seen = running
            continue
        message.settle(reply, timed)
        seen = worker.progress.read()


def _part(job: Job) -> dict[str, Any]:
    indices = [index for unit in job.units for index in job.call.units[unit]]
    batch = job.call.batch
    return {
        "function": job.call.function.name,
        "indices": indices,
        "sizes": [len(job.call.units[unit]) for unit in job.units],
        "batch": (batch if indices == list(range(len(batch))) else batch.take(indices)).to_wire(),
    }
