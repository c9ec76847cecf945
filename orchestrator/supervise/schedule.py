"""What may start, and when: the order that a plan implies."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from orchestrator.steps import Plan, Step
from orchestrator.supervise.events import Phase, RunState
from orchestrator.supervise.outcome import Status


@dataclass(frozen=True)
class Schedule:
    """What does not change during a run."""

    plan: Plan
    gate_timeout_s: float
    """Seconds that the gate may take."""
    ask_every_s: float | None = None
    """Seconds between two questions to a ready service whether it still answers; None = it is not asked."""

    @cached_property
    def steps(self) -> dict[str, Step]:
        return {step.name: step for step in self.plan.steps}

    @cached_property
    def services(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.plan.steps if step.ready)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.plan.steps if not step.ready)

    @cached_property
    def before_gate(self) -> frozenset[str]:
        """The services, and whatever some service comes after, directly or not: the gate cannot wait for those."""
        found: set[str] = set()
        pending = list(self.services)
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += self.steps[name].after
        return frozenset(found)


def plan_problems(plan: Plan) -> Iterator[str]:
    """Why a plan cannot be carried out: each is a mistake of the program that made it, not of the user."""
    names = [step.name for step in plan.steps]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two steps are called {name!r}"
    unknown = [(step.name, name) for step in plan.steps for name in step.after if name not in names]
    for step_name, name in unknown:
        yield f"step {step_name!r} comes after {name!r}, which is no step"
    try:
        TopologicalSorter({step.name: step.after for step in plan.steps}).prepare()
    except CycleError as error:
        yield f"steps wait for each other: {' -> '.join(error.args[1])}"


def is_done(schedule: Schedule, state: RunState, name: str) -> bool:
    """Whether others need not wait for the step: a service is ready, a task has ended well."""
    return state.steps[name].status is (Status.READY if schedule.steps[name].ready else Status.STOPPED)


def all_done(schedule: Schedule, state: RunState, names: tuple[str, ...]) -> bool:
    return all(is_done(schedule, state, name) for name in names)


def startable(schedule: Schedule, state: RunState, now: float) -> Iterator[str]:
    """Steps that wait for nothing any more: neither for others, nor for the gate, nor for their back-off."""
    for name, step in schedule.steps.items():
        one = state.steps[name]
        held = name not in schedule.before_gate and state.phase is not Phase.TASKS
        if one.status is Status.WAITING and now >= one.due and not held and all_done(schedule, state, step.after):
            yield name
