"""A plan as people read it, and as machines do."""

import shlex
from dataclasses import asdict
from typing import Any

from orchestrator.steps import Plan, Step


def text(plan: Plan) -> str:
    """One paragraph per step, in start order, ready to be copied into a shell."""
    head = f"plan {plan.name}: {len(plan.steps)} steps, stopped in reverse order within {plan.stop_grace_s:g} s"
    return "\n\n".join([head, *(_step(number, step) for number, step in enumerate(plan.steps, start=1))])


def _step(number: int, step: Step) -> str:
    env = " ".join(f"{key}={shlex.quote(value)}" for key, value in sorted(step.env.items()))
    waits = f"after {', '.join(step.after)}" if step.after else "at once"
    ready = (
        f"ready when {step.ready.url} answers, within {step.ready_timeout_s:g} s"
        if step.ready
        else "the run waits for its exit"
    )
    return "\n".join(
        [
            f"{number}. {step.name}: starts {waits}; {ready}",
            f"   {env + ' ' if env else ''}{shlex.join(step.argv)}",
        ]
    )


def as_json(plan: Plan) -> dict[str, Any]:
    return asdict(plan)
