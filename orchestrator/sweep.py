"""The checked jobs, one or many, handed to Hydra one after another; and how they ended, side by side."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from omegaconf import DictConfig

from orchestrator.exits import FINDINGS, OK, RUN_FAILED, SERVICE_FAILED, SIGNALLED
from orchestrator.findings import stopping
from orchestrator.jobs import CheckedJob, JobResult
from orchestrator.launch import job_overrides, launch, sweep_dir
from orchestrator.output import say
from orchestrator.redact import shown_override
from orchestrator.render.run import JobRow, sweep_table
from orchestrator.request import Request
from orchestrator.running import run_job
from orchestrator.supervise.rundir import write_json


def run_jobs(request: Request, jobs: Sequence[CheckedJob], *, config_dir: str | None) -> int:
    """Let Hydra launch what was asked for, leaving out jobs with errors; returns the worst exit code of all.

    A job never ends the process: it records how it ended, returns what a sweeper optimises (the last reward), and
    raises on failure.
    """
    rows: list[JobRow] = []
    folder: list[Path] = []
    told: list[str] = []
    common = set(request.jobs[0]).intersection(*request.jobs)

    def task(raw: DictConfig) -> float | None:
        folder[:] = [sweep_dir()]
        checked = None if request.sweeper else jobs[len(rows)]
        if checked and not checked.starts:
            rows.append(unstarted(len(rows), checked))
            return None
        overrides = checked.overrides if checked else job_overrides()
        if request.multirun:
            own = (override for override in overrides if override not in common)
            say(f"job {len(rows)}: {' '.join(map(shown_override, own))}", error=True)
        done = run_job(raw, overrides)
        rows.append(ended(len(rows), overrides, done))
        if done.code:
            told.append(done.reason)
        if done.code > SIGNALLED:
            raise KeyboardInterrupt  # the one thing that keeps Hydra from starting the next job
        if done.code:
            raise JobFailed(done.reason)
        return done.result.get("last_reward")

    complaint = launch(task, request.for_hydra, multirun=request.multirun, config_dir=config_dir)
    unknown = complaint and not told
    if unknown:  # not a job that failed
        say(complaint, error=True)
    if request.multirun and folder:
        known = () if request.sweeper else jobs[len(rows) :]
        rows += [unstarted(number, job) for number, job in enumerate(known, start=len(rows))]
        compare(rows, folder[0])
    codes = [row.code for row in rows if row.code is not None]
    return worst([OK, *codes, *([RUN_FAILED] if unknown else [])])


def compare(rows: Sequence[JobRow], folder: Path) -> None:
    """The jobs side by side: as a table on stdout, and in sweep.json."""
    write_json(folder / "sweep.json", [asdict(row) for row in rows])
    say(sweep_table(rows) + f"\nsaved in {folder / 'sweep.json'}")


def ended(number: int, overrides: Sequence[str], done: JobResult) -> JobRow:
    return JobRow(
        job=number,
        overrides=tuple(map(shown_override, overrides)),
        code=done.code,
        run_dir=str(done.run_dir or ""),
        result=done.result,
        not_started=done.reason if done.code == FINDINGS else None,
    )


def unstarted(number: int, job: CheckedJob) -> JobRow:
    codes = stopping(job.findings)
    return JobRow(
        job=number,
        overrides=tuple(map(shown_override, job.overrides)),
        code=FINDINGS if codes else None,
        not_started=", ".join(codes) or "the sweep ended first",
    )


def worst(codes: Sequence[int]) -> int:
    """Of several jobs' exit codes: a signal, then 3, 1, 2, 0."""
    return max(codes, key=lambda code: (code > SIGNALLED, code == SERVICE_FAILED, code == RUN_FAILED, code == FINDINGS))


class JobFailed(Exception):  # noqa: N818 - Hydra prints the class name
    """How a job tells Hydra's sweeper that it has no result."""
