"""How a call is cut into jobs: many short messages or an idle worker would be most of the time of a cheap function."""

import asyncio
from types import SimpleNamespace

import pytest

from rewards.running.schedule import LONG_JOB_S, WORTH_A_MESSAGE_S, Schedule


def sizes_of(units: int, workers: int, unit_s: float | None, is_async: bool = False) -> list[int]:
    async def cut() -> list[int]:
        schedule = Schedule(workers)
        if unit_s is not None:
            schedule.timed("f", unit_s)
        call = SimpleNamespace(function=SimpleNamespace(name="f", is_async=is_async), units=range(units))
        schedule.add(call)
        jobs = [schedule._jobs.get_nowait() for _ in range(schedule._jobs.qsize())]
        assert [unit for job in jobs for unit in job.units] == list(range(units))  # all of them, once, in order
        return [len(job.units) for job in jobs]

    return asyncio.run(cut())


def finish(sizes: list[int], workers: int) -> int:
    """When the last worker ends, in units, where each takes the next job as soon as it is free."""
    ends = [0] * workers
    for size in sizes:
        ends[ends.index(min(ends))] += size
    return max(ends)


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("units", [1, 2, 5, 16, 100, 256, 1000])
@pytest.mark.parametrize("unit_s", [None, 1e-5, 2.5e-3, 0.5])
def test_all_workers_end_at_about_the_same_time(units: int, workers: int, unit_s: float | None) -> None:
    sizes = sizes_of(units, workers, unit_s)
    least = max(1, int(WORTH_A_MESSAGE_S / unit_s)) if unit_s else 1
    assert finish(sizes, workers) <= units / workers + least


def test_a_slow_function_gets_jobs_of_one_unit() -> None:
    assert set(sizes_of(64, workers=2, unit_s=0.5)) == {1}


def test_a_cheap_function_gets_one_message_per_worker() -> None:
    assert sizes_of(256, workers=2, unit_s=1e-5) == [128, 128]


def test_no_job_is_long_and_there_are_few() -> None:
    sizes = sizes_of(256, workers=2, unit_s=2.5e-3)
    assert max(sizes) <= LONG_JOB_S / 2.5e-3
    assert len(sizes) <= 16


def test_async_units_are_spread_over_the_workers() -> None:
    assert sizes_of(10, workers=2, unit_s=None, is_async=True) == [5, 5]
