"""One job, from a merged recipe to result.json: ports, run directory, plan, services, handshake, training, report."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from launchers.context import Context
from orchestrator.compose import Composed
from orchestrator.exits import FINDINGS, OK, RUN_FAILED
from orchestrator.facts import ModelFacts
from orchestrator.findings import stopping, stops_a_run
from orchestrator.jobs import WHOLE, CheckedJob, JobResult, Share, check_composed
from orchestrator.kinds import generation_kind
from orchestrator.ledgers.memory import BYTES, num_parameters
from orchestrator.output import say
from orchestrator.paths import RunPaths
from orchestrator.plan import make_plan
from orchestrator.render import findings as render_findings
from orchestrator.render import plan as render_plan
from orchestrator.render import run as render_run
from orchestrator.render.progress import display
from orchestrator.resolve import auto_ports, register_resolvers, settled, with_defaults
from orchestrator.schema import RunConfig
from orchestrator.supervise.handshake import handshake
from orchestrator.supervise.leases import lease_ports
from orchestrator.supervise.lock import lock
from orchestrator.supervise.outcome import Outcome
from orchestrator.supervise.record import live_processes
from orchestrator.supervise.run import run_plan
from orchestrator.supervise.rundir import create_run_dir, write_json
from orchestrator.supervise.shared_memory import weights_folder
from orchestrator.supervise.watch import FileWatch
from orchestrator.turns import CUDA_VISIBLE_DEVICES, devices


def run_job(raw: DictConfig, overrides: tuple[str, ...], share: Share = WHOLE) -> JobResult:
    """Check, then run. Prints progress on stderr and the report on stdout."""
    raw = with_defaults(raw)
    with fixed_ports(raw) as fixed:
        job = check_composed(Composed(raw=fixed, overrides=overrides))
        if stops_a_run(job.findings):
            say(render_findings.text(job.findings), error=True)
            return JobResult(code=FINDINGS, run_dir=None, result={}, reason=", ".join(stopping(job.findings)))
        try:
            run_dir = create_run_dir(Path(job.run.runs_dir), job.run.name, datetime.now()).resolve()
            # The recipe as merged, interpolations and `auto` included: what a resume starts from.
            OmegaConf.save(settled(raw), RunPaths(run_dir=run_dir).recipe)
        except OSError as error:
            reason = f"no run directory can be written in runs_dir = {job.run.runs_dir}: {error}"
            say(f"orchestrate: {reason}; set runs_dir to a folder that can be written", error=True)
            return JobResult(code=RUN_FAILED, run_dir=None, result={}, reason=reason)
        return _carry_out(job, fixed, run_dir, share)


def resume_run(run_dir: Path) -> int:
    """Go on from the last whole checkpoint, in the same run directory. Returns the exit code."""
    paths, checkpoint = RunPaths(run_dir=run_dir), last_checkpoint(run_dir)
    if live := live_processes(run_dir):
        return _refuse(f"{run_dir} is still running (pid {live[0].pid}); first: orchestrate stop {run_dir}")
    if _read(paths.result).get("code") == OK:
        return _refuse(f"{run_dir} has ended well; there is nothing to resume")
    if checkpoint is None:
        return _refuse(f"{run_dir} holds no whole checkpoint; start it anew, with trainer.args.save_steps small enough")
    register_resolvers()
    before = _read(paths.lock)
    os.chdir(before["cwd"])
    raw = OmegaConf.load(paths.recipe)
    assert isinstance(raw, DictConfig)  # noqa: S101 - we wrote it
    with fixed_ports(raw) as fixed:
        job = check_composed(Composed(raw=fixed, overrides=tuple(before["overrides"])))
        if stops_a_run(job.findings):
            say(render_findings.text(job.findings), error=True)
            return FINDINGS
        say(f"resuming {run_dir} from {checkpoint.name}", error=True)
        return _carry_out(job, fixed, run_dir, WHOLE, resume_from=str(checkpoint)).code


def _refuse(reason: str) -> int:
    say(f"orchestrate: {reason}", error=True)
    return FINDINGS


def last_checkpoint(run_dir: Path) -> Path | None:
    """The newest checkpoint that is whole: trainer_state.json is written last, and is cut short if its writer dies."""
    found = [
        (int(match[1]), path)
        for path in RunPaths(run_dir=run_dir).checkpoints.glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name)) and _is_json(path / "trainer_state.json")
    ]
    return max(found)[1] if found else None


@contextmanager
def fixed_ports(raw: DictConfig) -> Iterator[DictConfig]:
    """A copy with every `port: auto` replaced, before interpolation, by a port that is ours for the time of the run."""
    fixed = deepcopy(raw)
    paths = auto_ports(fixed)
    leases = lease_ports(len(paths))
    try:
        for path, lease in zip(paths, leases, strict=True):
            OmegaConf.update(fixed, path, lease.port)
        yield fixed
    finally:
        for lease in leases:
            lease.release()


def _carry_out(
    job: CheckedJob, raw: DictConfig, run_dir: Path, share: Share, *, resume_from: str | None = None
) -> JobResult:
    """One orchestrator per run directory; what the disk refuses ends the job with a sentence."""
    try:
        with FileLock(RunPaths(run_dir=run_dir).in_use, timeout=0):
            return _carry_out_alone(job, raw, run_dir, share, resume_from=resume_from)
    except Timeout:
        return _ended(run_dir, f"another orchestrate works in {run_dir}; first: orchestrate stop {run_dir}")
    except OSError as error:
        return _ended(run_dir, f"{run_dir} cannot be written: {error}")


def _ended(run_dir: Path, reason: str) -> JobResult:
    say(f"orchestrate: {reason}", error=True)
    return JobResult(code=RUN_FAILED, run_dir=run_dir, result={}, reason=reason)


def _carry_out_alone(
    job: CheckedJob, raw: DictConfig, run_dir: Path, share: Share, *, resume_from: str | None
) -> JobResult:
    run = job.run
    # The check has looked at the whole machine; what is started sees the job's share of it.
    extra_env = {} if share.gpus is None else {CUDA_VISIBLE_DEVICES: share.gpus}
    context = Context(
        run_dir=run_dir,
        num_cpus=max(1, job.facts.num_cpus // share.num_jobs),
        vllm_version=job.facts.vllm_version,
        devices=devices(run, job.facts, os.environ.get(CUDA_VISIBLE_DEVICES), share.gpus),
    )
    plan = make_plan(run, context, resume_from=resume_from)
    paths = context.paths
    OmegaConf.save(OmegaConf.create(OmegaConf.to_container(raw, resolve=True)), paths.config)
    write_json(paths.plan, render_plan.as_json(plan))
    write_json(paths.findings, render_findings.as_json([job]))
    write_json(paths.lock, lock(run, job.facts, job.overrides, os.environ | extra_env))
    for path in (paths.trainer, paths.progress):  # of the part before a resume
        path.unlink(missing_ok=True)
    watch = FileWatch(run, paths)
    console = Console(stderr=True)
    with (
        weights_folder(paths, _weight_bytes(job)) as weights,
        display(console, paths.metrics, _num_steps(run)) as observer,
    ):
        outcome = run_plan(
            plan,
            run_dir,
            gate=lambda: _gate(job, run_dir),
            observer=observer,
            watch=watch,
            extra_env=extra_env,
            scratch=weights,
        )
    result = _result(run, paths, outcome) | {"alarms": watch.raised}
    write_json(paths.result, result)
    if outcome.code == OK:
        say(render_run.report(result))
    else:
        resumable = last_checkpoint(run_dir) is not None
        say(render_run.failure(outcome, str(run_dir), resumable=resumable), error=True)
    return JobResult(code=outcome.code, run_dir=run_dir, result=result, reason=outcome.reason)


def _weight_bytes(job: CheckedJob) -> float | None:
    """Of one weight file on its way; None where shared memory must not be used: what others started reads elsewhere."""
    run, model = job.run, job.facts.models.get(job.run.generation.model)
    if not generation_kind(run.generation).started or not isinstance(model, ModelFacts):
        return None
    params = num_parameters(model)
    return None if params is None else params * BYTES[run.generation.dtype]


def _gate(job: CheckedJob, run_dir: Path) -> str | None:
    """What keeps the trainer from starting; what is only odd is said beside the display."""
    found = handshake(job.run, run_dir, job.facts)
    if found.warning:
        say(found.warning, error=True)
    return found.problem


def _num_steps(run: RunConfig) -> int | None:
    steps = run.trainer.args.get("max_steps", -1)
    return steps if isinstance(steps, int) and steps > 0 else None


def _result(run: RunConfig, paths: RunPaths, outcome: Outcome) -> dict[str, Any]:
    trained = _read(paths.trainer)
    counts = _read(paths.counts)
    return {
        "code": outcome.code,
        "failed": outcome.failed,
        "reason": outcome.reason,
        "run_dir": str(paths.run_dir),
        "name": run.name,
        "seed": run.seed,
        "seconds": dict(outcome.seconds_by_step),
        "stop_s": outcome.stop_s,
        **trained,
        "counts": counts.get("counted", {}),
    }


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
