"""The rules of a run as a pure function: state and event in, state and actions out. No clock, no process, no thread."""

import signal
from collections.abc import Callable
from dataclasses import replace

from orchestrator.exits import RUN_FAILED, SERVICE_FAILED
from orchestrator.steps import Plan
from orchestrator.supervise import events as ev
from orchestrator.supervise.events import Action, Event, Phase, RunState, StepState
from orchestrator.supervise.outcome import Status
from orchestrator.supervise.schedule import Schedule, all_done, startable

FIRST_BACKOFF_S = 0.5
REPEATED_SIGNAL_S = 0.5
"""A wrapper (uv, make) may pass on the Ctrl-C that the terminal sent us too: so soon, it is the same one."""
RUNS = (Status.STARTING, Status.READY, Status.RUNNING)


def begin(plan: Plan, now: float) -> RunState:
    """Nothing has started."""
    return RunState(steps={step.name: StepState() for step in plan.steps}, phase_began=now)


def advance(schedule: Schedule, state: RunState, event: Event, now: float) -> tuple[RunState, tuple[Action, ...]]:
    """Take in one event, then do whatever has become possible or due. `now` in seconds of any steady clock."""
    if state.phase is Phase.DONE:
        return state, ()
    if state.phase is Phase.STOPPING:
        return take_in_while_stopping(state, event, now)
    return go_on(schedule, take_in(schedule, state, event, now), now)


def take_in(schedule: Schedule, state: RunState, event: Event, now: float) -> RunState:
    """The event's direct effect."""
    match event:
        case ev.Started(name, pid):
            status = Status.STARTING if schedule.steps[name].ready else Status.RUNNING
            state = replace(state, started=tuple(dict.fromkeys((*state.started, name))))
            return change(state, name, status=status, pid=pid, started=now, ended=None, due=now, probing=False)
        case ev.Ready(name, pid) if is_current(state, name, pid):
            return change(state, name, status=Status.READY, probing=False, reason="", answered=now)
        case ev.ProbeFailed(name, pid, reason) if is_current(state, name, pid):
            probe = schedule.steps[name].ready
            due = now + (probe.interval_s if probe else 0.0)
            return change(state, name, probing=False, reason=reason, due=due)
        case ev.Ready(name, pid) if is_asked(state, name, pid):
            return change(state, name, probing=False, reason="", answered=now, due=next_question(schedule, now))
        case ev.ProbeFailed(name, pid, reason) if is_asked(state, name, pid):
            return change(state, name, probing=False, reason=reason, due=next_question(schedule, now))
        case ev.Impostor(name, pid, reason) if is_current(state, name, pid):
            return lose(schedule, state, name, reason, now)
        case ev.StartFailed(name, reason):
            return lose(schedule, state, name, reason, now)
        case ev.Exited(name, code) if state.steps[name].status in RUNS:
            if code == 0 and schedule.steps[name].ready is None:
                return change(state, name, status=Status.STOPPED, ended=now)
            return lose(schedule, state, name, exit_reason(state.steps[name], code, now), now)
        case ev.GatePassed() if state.phase is Phase.GATE:
            return replace(state, phase=Phase.TASKS, phase_began=now)
        case ev.GateFailed(reason) if state.phase is Phase.GATE:
            return fail(state, SERVICE_FAILED, None, reason)
        case ev.Alarmed(name, reason, stop=True) if state.phase is Phase.TASKS:
            return fail(state, RUN_FAILED, name, f"{name}: {reason}")
        case ev.Signal(number):
            return fail(state, 128 + number, None, f"stopped by {signal.Signals(number).name}")
    return state


def take_in_while_stopping(state: RunState, event: Event, now: float) -> tuple[RunState, tuple[Action, ...]]:
    """Only exits still count, and a signal of an impatient user."""
    match event:
        case ev.Exited(name, _) if state.steps[name].status in RUNS:
            return change(state, name, status=Status.STOPPED, ended=now), ()
        case ev.Signal(signal.SIGINT) if now - state.phase_began >= REPEATED_SIGNAL_S:
            return state, (ev.Hurry(),)
        case ev.AllStopped():
            for name, one in state.steps.items():
                if one.status in RUNS:
                    ended = Status.STOPPED if one.pid is not None else Status.WAITING
                    state = change(state, name, status=ended, ended=now)
            return replace(state, phase=Phase.DONE, phase_began=now), ()
    return state, ()


def go_on(schedule: Schedule, state: RunState, now: float) -> tuple[RunState, tuple[Action, ...]]:
    """What the state calls for by itself: deadlines, the next phase, starts, probes."""
    state = check_deadlines(schedule, state, now)
    finished = state.phase is Phase.TASKS and all_done(schedule, state, schedule.tasks)
    if state.failure or finished:
        return replace(state, phase=Phase.STOPPING, phase_began=now), (ev.StopAll(schedule.plan.stop_grace_s),)
    actions: list[Action] = []
    if state.phase is Phase.SERVICES and all_done(schedule, state, schedule.services):
        state = replace(state, phase=Phase.GATE, phase_began=now)
        actions.append(ev.OpenGate())
    for name in startable(schedule, state, now):
        state = change(state, name, status=Status.STARTING, pid=None, started=now, ended=None)
        actions.append(ev.Start(name))
    asked = (Status.READY,) if state.phase is Phase.TASKS and schedule.ask_every_s is not None else ()
    for name, one in state.steps.items():
        if one.status in (Status.STARTING, *asked) and one.pid is not None and not one.probing and now >= one.due:
            state = change(state, name, probing=True)
            actions.append((ev.Ask if one.status is Status.READY else ev.Probe)(name, one.pid))
    return state, tuple(actions)


def check_deadlines(schedule: Schedule, state: RunState, now: float) -> RunState:
    """Services that should have been ready by now, and the gate."""
    for name, one in state.steps.items():
        limit_s = schedule.steps[name].ready_timeout_s
        if one.status is Status.STARTING and one.started is not None and now - one.started >= limit_s:
            last = f" (last probe: {one.reason})" if one.reason else ""
            state = lose(schedule, state, name, f"not ready after {now - one.started:.1f} s{last}", now)
    if state.phase is Phase.GATE and now - state.phase_began >= schedule.gate_timeout_s:
        state = fail(state, SERVICE_FAILED, None, f"the handshake was not over after {schedule.gate_timeout_s:g} s")
    return state


def lose(schedule: Schedule, state: RunState, name: str, reason: str, now: float) -> RunState:
    """A step ended, or will not come up: start it again later if it may, otherwise the run has failed."""
    step, one = schedule.steps[name], state.steps[name]
    if state.phase is Phase.TASKS and one.restarts < step.restarts:
        due = now + FIRST_BACKOFF_S * 2**one.restarts
        return change(state, name, status=Status.WAITING, restarts=one.restarts + 1, due=due, reason=reason, ended=now)
    state = change(state, name, status=Status.FAILED, reason=reason, ended=now)
    starting_up = step.ready is not None and state.phase is not Phase.TASKS
    return fail(state, SERVICE_FAILED if starting_up else RUN_FAILED, name, f"{name}: {reason}")


def fail(state: RunState, code: int, step: str | None, reason: str) -> RunState:
    """Keep the first failure."""
    return replace(state, failure=state.failure or ev.Failure(code=code, step=step, reason=reason))


def is_current(state: RunState, name: str, pid: int) -> bool:
    """Whether a probe's answer is about the process that is starting now."""
    return state.steps[name].status is Status.STARTING and state.steps[name].pid == pid


def is_asked(state: RunState, name: str, pid: int) -> bool:
    """Whether an answer is about the process that serves now."""
    return state.steps[name].status is Status.READY and state.steps[name].pid == pid


def next_question(schedule: Schedule, now: float) -> float:
    return now + (schedule.ask_every_s or 0.0)


def exit_reason(one: StepState, code: int, now: float) -> str:
    """How and when it ended, in words."""
    early = ", before it was ready" if one.status is Status.STARTING else ""
    after = f"after {now - (now if one.started is None else one.started):.1f} s{early}"
    if code >= 0:
        return f"exited with code {code} {after}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"ended by {name}{hint} {after}"


def change(state: RunState, name: str, **fields: object) -> RunState:
    """The state with some fields of one step replaced."""
    replaced: Callable[..., StepState] = replace
    return replace(state, steps={**state.steps, name: replaced(state.steps[name], **fields)})
