"""One job on one worker: settle every unit that is answered, and say which units must be tried again."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from rewards.batch import Batch
from rewards.contract import FailureKind
from rewards.execute import UnitResult, failed_unit, samples, timeout_message
from rewards.process import WorkerDiedError, WorkerProcess

BEGIN_LIMIT_S = 30.0  # an idle worker decodes its job in this time, however large
ASYNC_GRACE_S = 1.0  # a worker's event loop ends late units itself; only one that is blocked needs us
TRIES = 2  # a unit that was running when its worker died gets one more


@dataclass(eq=False)
class Unit:
    """One call of one function, until it has a result."""

    function: str
    indices: tuple[int, ...]
    batch: Batch
    done: "asyncio.Future[UnitResult]"
    crashes: int = 0

    def settle(self, result: UnitResult) -> None:
        if not self.done.done():  # done already: the client has gone, or the server stops
            self.done.set_result(result)

    def fail(self, message: str, kind: FailureKind) -> None:
        self.settle(failed_unit(self.function, self.indices, message, kind))


@dataclass(order=True)
class Job:
    """Units of one function for one worker. Ordered by priority, then by number."""

    priority: int
    number: int
    units: list[Unit] = field(compare=False)
    concurrent: bool = field(compare=False)
    """The units run side by side on the worker's event loop (async functions), not one after the other."""


async def run_job(worker: WorkerProcess, job: Job, limit_s: float) -> list[list[Unit]]:
    """Run the job's open units. Returns jobs for the queue: what a killed or dead worker still owed.

    Does not raise. The worker is not usable any more where a unit exceeded its limit.
    """
    waiting = {number: unit for number, unit in enumerate(job.units) if not unit.done.done()}
    if not waiting:
        return []
    try:
        worker.send(_job_message(waiting, limit_s))
        await _begin(worker)
        await _collect(worker, waiting, limit_s, job.concurrent)
    except TimeoutError:
        worker.kill()
        return _after_timeout(list(waiting.values()), limit_s, job.concurrent)
    except WorkerDiedError as death:
        worker.kill()
        return _after_death(list(waiting.values()), str(death), job.concurrent)
    return []


def _job_message(units: dict[int, Unit], limit_s: float) -> dict[str, object]:
    listed = [{"unit": n, "indices": u.indices, "batch": u.batch.to_wire()} for n, u in units.items()]
    return {"function": next(iter(units.values())).function, "limit_s": limit_s, "units": listed}


async def _begin(worker: WorkerProcess) -> None:
    """The limits count from here, so that a large job's transfer is not held against its first unit."""
    try:
        await worker.receive(BEGIN_LIMIT_S)
    except TimeoutError:
        raise WorkerDiedError(f"the worker did not take its job within {BEGIN_LIMIT_S:g} s") from None


async def _collect(worker: WorkerProcess, waiting: dict[int, Unit], limit_s: float, concurrent: bool) -> None:
    """Settle units as replies arrive, removing them from `waiting`."""
    now = asyncio.get_running_loop().time
    deadline = now() + limit_s + (ASYNC_GRACE_S if concurrent else 0.0)
    while waiting:
        reply = await worker.receive(deadline - now())
        waiting.pop(reply["unit"]).settle(UnitResult.from_wire(reply["result"]))
        if not concurrent:  # the next unit starts only now
            deadline = now() + limit_s


def _after_timeout(owed: list[Unit], limit_s: float, concurrent: bool) -> list[list[Unit]]:
    if concurrent and len(owed) > 1:  # one of them blocks the event loop: alone, each shows whether it is the one
        return _alone(owed)
    owed[0].fail(timeout_message(owed[0].function, owed[0].indices, limit_s), "timeout")
    return [owed[1:]] if owed[1:] else []


def _after_death(owed: list[Unit], reason: str, concurrent: bool) -> list[list[Unit]]:
    running, untouched = (owed, []) if concurrent else (owed[:1], owed[1:])
    for unit in running:
        unit.crashes += 1
        if unit.crashes >= TRIES:
            unit.fail(f"{unit.function} brought its worker down on {samples(unit.indices)}: {reason}", "crash")
    # Alone, so that nothing else is lost when it happens again.
    again = _alone(unit for unit in running if not unit.done.done())
    return again + ([untouched] if untouched else [])


def _alone(units: Iterable[Unit]) -> list[list[Unit]]:
    return [[unit] for unit in units]
