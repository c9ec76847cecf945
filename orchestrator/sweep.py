"""The checked jobs, one or many, handed to Hydra; and how they ended, side by side."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from omegaconf import DictConfig

from orchestrator.compose import Composer, launch, sweep_dir
from orchestrator.exits import FINDINGS, RUN_FAILED, SERVICE_FAILED, SIGNALLED
from orchestrator.jobs import CheckedJob
from orchestrator.output import say
from orchestrator.render.run import JobRow, sweep_table
from orchestrator.running import run_job
from orchestrator.supervise.rundir import write_json


def run_jobs(
    composer: Composer, jobs: list[CheckedJob], overrides: Sequence[str], *, multirun: bool, config_dir: str | None
) -> int:
    """Hand the checked overrides to Hydra and return the worst exit code of the jobs.

    A job never ends the process: it records how it ended, returns what a sweeper optimises (the last reward), and
    raises on failure.
    """
    ended: list[JobRow] = []
    folder: list[Path] = []

    def task(raw: DictConfig) -> float | None:
        folder[:] = [sweep_dir()]
        job = jobs[len(ended)]
        done = run_job(raw, job.overrides)
        ended.append(JobRow.of(len(ended), job, done))
        if done.code > SIGNALLED:
            raise KeyboardInterrupt  # the one thing that keeps Hydra from starting the next job
        if done.code:
            raise JobFailed(done.reason)
        return done.result.get("last_reward")

    complaint = launch(task, composer.for_hydra(overrides), multirun=multirun, config_dir=config_dir)
    codes = [row.code for row in ended if row.code is not None]
    if complaint and not any(codes):  # not a job that failed, but something that nobody has told yet
        say(complaint, error=True)
        return RUN_FAILED
    if multirun:
        # Jobs that a signal kept from starting are in the table too.
        rows = [*ended, *(JobRow.of(n, job, None) for n, job in enumerate(jobs) if n >= len(ended))]
        write_json(folder[0] / "sweep.json", [asdict(row) for row in rows])
        say(sweep_table(rows) + f"\nsaved in {folder[0] / 'sweep.json'}")
    return worst(codes)


def worst(codes: Sequence[int]) -> int:
    """Of several jobs' exit codes: a signal, then 3, 1, 2, 0."""
    return max(codes, key=lambda code: (code > SIGNALLED, code == SERVICE_FAILED, code == RUN_FAILED, code == FINDINGS))


class JobFailed(Exception):  # noqa: N818 - Hydra prints the class name
    """How a job tells Hydra's sweeper that it has no result."""
