"""Alarms over what does not happen. The process that hangs cannot say so itself: the orchestrator's clock does."""

from collections.abc import Iterator

from orchestrator.alarms.seen import Seen, Sign
from orchestrator.schema import RunConfig


def start_limit_s(run: RunConfig) -> float:
    """Seconds that the trainer has from its start until it reports for the first time."""
    return max(run.supervision.ready_timeout_s, run.supervision.alarms.stall_s)


def silence_limit_s(run: RunConfig) -> float:
    """Seconds that a service may be silent: less than a stall, so that the cause is named before its effect."""
    return run.supervision.alarms.stall_s / 2


def stalled(seen: Seen, run: RunConfig) -> Iterator[Sign]:
    """The trainer does not come forward.

    ## What it watches
    progress.json, in which the trainer says what it begins: a weight sync, a generation, a scoring, its own
    computation, a checkpoint, an evaluation. None of them may take longer than `supervision.alarms.stall_s`. Before the
    first one (imports, model, compilation) the trainer has the longer of `supervision.ready_timeout_s` and `stall_s`.
    A trainer of `kind: command` reports nothing and is not watched.
    ## Why it matters
    A weight sync whose other side has gone, or a collective that one rank never joins, waits for ever and logs nothing,
    while the GPUs are paid for.
    ## What to do
    The alarm says what the trainer was doing. Look at the logs of the trainer and of the service it was talking to;
    `py-spy dump --pid PID` shows where it stands. If it was only slow, set `supervision.alarms.stall_s` above the
    longest part of a step.
    """
    alarms = run.supervision.alarms
    limit_s = alarms.stall_s if seen.doing else start_limit_s(run)
    if run.trainer.kind == "command" or seen.quiet_s < limit_s:
        return
    setting = f"supervision.alarms.stall_s = {alarms.stall_s:g}"
    if not seen.doing:
        setting += f", supervision.ready_timeout_s = {run.supervision.ready_timeout_s:g}"
    yield Sign(
        problem=f"{seen.doing or 'the start of the trainer'} has not ended after {seen.quiet_s:.0f} s; {setting}",
        why="What waits for ever keeps its machines and trains nothing.",
        fix=f"see what it waits for in the logs; if it is only slow, supervision.alarms.stall_s={2 * alarms.stall_s:g}",
    )


def service_silent(seen: Seen, run: RunConfig) -> Iterator[Sign]:
    """A service lives and does not answer.

    ## What it watches
    The health address of every service that the run has started, during training. Its process is there, and yet no
    request was answered for half of `supervision.alarms.stall_s`. (A service that ends is no alarm: it fails the run.)
    ## Why it matters
    A wedged server (deadlock, a lost GPU, swapping, a stopped process) takes requests and never answers: the trainer
    waits until its own time limit, `generation.request_timeout_s`, and the error then names the request, not the cause.
    ## What to do
    Look at the service's log and at its machine. If the server was only busy, set `supervision.alarms.stall_s` higher.
    """
    limit_s = silence_limit_s(run)
    for service, silence in seen.silent.items():
        if silence.seconds >= limit_s:
            yield Sign(
                process=service,
                problem=f"it has not answered for {silence.seconds:.0f} s although its process lives "
                f"({silence.reason}); half of supervision.alarms.stall_s = {run.supervision.alarms.stall_s:g}",
                why="The trainer waits for answers that do not come.",
                fix="see its log; if it is only busy, "
                f"supervision.alarms.stall_s={2 * run.supervision.alarms.stall_s:g}",
            )
