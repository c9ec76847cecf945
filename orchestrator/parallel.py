"""A sweep whose jobs run several at once, each an orchestrator of its own with its own ports, services and tear-down.

Here is only who may start when, and the end: every job is a child that this process waits for, that a guardian ends
when this process is killed, and that ends what it has started itself.
"""

import os
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launchers.context import module_argv
from orchestrator.compose import Composer
from orchestrator.exits import OK, RUN_FAILED, SIGNALLED
from orchestrator.facts.gpus import visible_gpus
from orchestrator.jobs import CheckedJob, JobResult, Share
from orchestrator.output import say
from orchestrator.redact import shown_override
from orchestrator.render.run import JobRow, job_ended, job_started
from orchestrator.request import Request, sweep_folder
from orchestrator.steps import Step
from orchestrator.supervise import events as ev
from orchestrator.supervise.family import Family, children_in_own_session, end_order
from orchestrator.supervise.guard import GOODBYE_S, Guard
from orchestrator.supervise.orphans import adopting_orphans
from orchestrator.supervise.procs import Proc, descendants, identity_of, read_table, send_signal, ticks_since_boot
from orchestrator.supervise.reap import KILL_LIMIT_S, Ending
from orchestrator.supervise.run import GUARDIAN_LOG, HANDLED, Postbox, signals_posted_to
from orchestrator.supervise.rundir import log_path
from orchestrator.supervise.spawn import Child, SpawnError
from orchestrator.supervise.workers import ProcessReaper, ProcessSpawner
from orchestrator.sweep import compare, ended, unstarted, worst
from orchestrator.sweep_job import Errand, read_outcome
from orchestrator.turns import CUDA_VISIBLE_DEVICES, Turn, need_of, next_turn, pool_of

PASS_S = 0.05
LOOK_S = 0.5


def run_in_parallel(
    composer: Composer, request: Request, jobs: Sequence[CheckedJob], *, at_once: int, config_dir: str | None
) -> int:
    """Run the jobs without errors, at most `at_once` at a time; returns the worst exit code of all."""
    folder = sweep_folder(composer, request.jobs[0])
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        say(f"orchestrate: the sweep's folder cannot be written: {error}; set runs_dir to another one", error=True)
        return RUN_FAILED
    grace_s = max(job.run.supervision.stop_grace_s for job in jobs) + KILL_LIMIT_S + GOODBYE_S
    run_id, since, box = f"sweep-{uuid.uuid4().hex}", ticks_since_boot(), Postbox()
    family = Family(run_id, identity_of(os.getpid()), since)
    guard_log = log_path(folder, GUARDIAN_LOG)
    with signals_posted_to(box), adopting_orphans(), Guard(run_id, grace_s, since, guard_log) as guard:
        spawner = ProcessSpawner(folder, family, guard, {})
        sweep = ParallelSweep(
            jobs=jobs, request=request, at_once=at_once, config_dir=config_dir,
            folder=folder, spawner=spawner, box=box, grace_s=grace_s,
        )  # fmt: skip
        rows = sweep.run(ProcessReaper(family, guard, spawner))
        spawner.write_record(ended=True)
    compare(rows, folder)
    codes = [row.code for row in rows if row.code is not None]
    return worst([OK, *codes, *(SIGNALLED + number for number in box.signals)])


@dataclass
class RunningJob:
    """A job that was started and is not quite gone."""

    turn: Turn
    child: Child
    ending: Ending | None = None


@dataclass(kw_only=True)
class ParallelSweep:
    """One sweep, from the first start to the last exit."""

    jobs: Sequence[CheckedJob]
    request: Request
    at_once: int
    config_dir: str | None
    folder: Path
    spawner: ProcessSpawner
    box: Postbox
    grace_s: float
    """Seconds that a job which is asked to end, or what one has left, may take."""
    running: list[RunningJob] = field(default_factory=list)
    rows: dict[int, JobRow] = field(default_factory=dict)
    deadline: float | None = None
    """When jobs that were asked to end are killed; None = nobody was asked."""

    def __post_init__(self) -> None:
        visible = os.environ.get(CUDA_VISIBLE_DEVICES)
        starting = [job.run for job in self.jobs if job.starts]
        self.pool = pool_of(starting, visible_gpus(visible), visible)
        self.waiting = [need_of(number, job, self.pool) for number, job in enumerate(self.jobs) if job.starts]

    def run(self, reaper: ProcessReaper) -> list[JobRow]:
        """Returns when nothing of any job is left. A job that fails stops no other one; a signal stops all."""
        looked = 0.0
        while self.running or (self.waiting and self.deadline is None):
            self.hear()
            self.start_what_may()
            for job in list(self.running):
                self.end(job)
            if time.monotonic() - looked >= LOOK_S:
                looked = time.monotonic()
                reaper.look()
        return [self.rows.get(number) or unstarted(number, job) for number, job in enumerate(self.jobs)]

    def hear(self) -> None:
        """A signal goes to every job, which knows what to do: also what a second Ctrl-C means."""
        event = self.box.get(PASS_S)
        while event is not None:
            if isinstance(event, ev.Signal):
                if self.deadline is None:
                    self.deadline = time.monotonic() + self.grace_s
                for job in self.running:
                    send_signal(job.child.identity, signal.Signals(event.number))
            event = self.box.get(0.0)

    def start_what_may(self) -> None:
        while self.deadline is None:
            running = [job.turn for job in self.running]
            turn = next_turn(self.waiting, running, self.pool.indices, self.at_once)
            if turn is None:
                return
            self.waiting.remove(turn.need)
            self.start(turn)

    def start(self, turn: Turn) -> None:
        self.outcome_path(turn.job).unlink(missing_ok=True)  # of an earlier sweep, where hydra.sweep.dir is a fixed one
        share = Share(num_jobs=self.at_once, gpus=self.pool.visible(turn.gpus))
        errand = Errand(
            overrides=self.jobs[turn.job].overrides,
            config_dir=self.config_dir,
            share=share,
            outcome=str(self.outcome_path(turn.job)),
        )
        argv = module_argv(sys.executable, "orchestrator.sweep_job")
        try:
            child = self.spawner.start(Step(name=str(turn.job), argv=argv, env=errand.environment()))
        except SpawnError as error:
            self.conclude(turn, JobResult(code=RUN_FAILED, run_dir=None, result={}, reason=str(error)))
            return
        self.running.append(RunningJob(turn, child))
        common = set(self.request.jobs[0]).intersection(*self.request.jobs)
        own = [shown_override(override) for override in self.jobs[turn.job].overrides if override not in common]
        say(job_started(turn.job, own, turn.gpus, self.log_path(turn.job)), error=True)

    def end(self, job: RunningJob) -> None:
        """See to a job that has exited or has had its time: its GPUs are free when nothing of it is left."""
        now, code = time.monotonic(), job.child.poll()
        if job.ending is None:
            late = self.deadline is not None and now >= self.deadline
            if code is None and not late:
                return
            # One that was killed leaves its services to its guardian: that takes the job's own grace.
            job.ending = Ending(lambda: self.left_of(job), now if late else now + self.grace_s)
        if job.ending.step(now):
            self.running.remove(job)
            self.conclude(job.turn, self.result(job.turn, -signal.SIGKILL if code is None else code))

    def left_of(self, job: RunningJob) -> list[Proc]:
        """The living processes of a job. When it is gone, what it has left is ours: a job that lives adopts its own."""
        table, family = read_table(), self.spawner.family
        jobs = {other.child.identity for other in self.running}
        orphans = children_in_own_session(table, family.owner, family.since) - jobs - family.spared
        found = descendants(table, orphans | {job.child.identity})
        return end_order(proc for one in found if (proc := table[one.pid]).alive)

    def result(self, turn: Turn, exit_code: int) -> JobResult:
        """What the job has said; of one that could not say anything, what its end tells."""
        if said := read_outcome(self.outcome_path(turn.job)):
            return said
        by_signal = f"ended by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exited with code {exit_code}"
        asked = -exit_code in HANDLED
        code = SIGNALLED - exit_code if asked else RUN_FAILED
        reason = f"{by_signal}, before it could say how it went"
        return JobResult(code=code, run_dir=None, result={"reason": reason}, reason=reason)

    def conclude(self, turn: Turn, done: JobResult) -> None:
        self.rows[turn.job] = ended(turn.job, self.jobs[turn.job].overrides, done)
        say(job_ended(self.rows[turn.job], done.reason, self.log_path(turn.job)), error=True)

    def log_path(self, job: int) -> Path:
        return log_path(self.folder, str(job))

    def outcome_path(self, job: int) -> Path:
        return self.folder / f"{job}.json"
