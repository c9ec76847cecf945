"""Alarms: what a run that goes on must not look like. One small pure function each, and a literal table of them.

A rule (orchestrator/rules) compares settings before anything starts; an alarm looks at what the run does. The loop of
the supervisor asks them (orchestrator/supervise/watch.py); docs/alarms.md says when each clock starts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from orchestrator.alarms import steps, waits
from orchestrator.alarms.seen import Seen, Sign
from orchestrator.schema import AlarmsConfig, RunConfig

__all__ = ["ALARMS", "Alarm", "Seen", "Sign", "action_of", "signs"]

OFF, STOP = "off", "stop"


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Code = RUN + number, never reused. The docstring of `check` is the alarm's page in docs/rules/."""

    code: str
    name: str
    check: Callable[[Seen, RunConfig], Iterator[Sign]]


ALARMS: tuple[Alarm, ...] = (
    Alarm(code="RUN001", name="completions-clipped", check=steps.completions_clipped),
    Alarm(code="RUN002", name="no-reward-spread", check=steps.no_reward_spread),
    Alarm(code="RUN003", name="group-without-reward", check=steps.group_without_reward),
    Alarm(code="RUN004", name="stalled", check=waits.stalled),
    Alarm(code="RUN005", name="service-silent", check=waits.service_silent),
    Alarm(code="RUN006", name="not-finite", check=steps.not_finite),
)


def action_of(alarms: AlarmsConfig, code: str) -> str:
    """warn, stop or off."""
    return alarms.actions.get(code, alarms.action)


def signs(seen: Seen, run: RunConfig) -> list[Sign]:
    """Every sign of every alarm that is not off, in the order of the table."""
    asked = [alarm for alarm in ALARMS if action_of(run.supervision.alarms, alarm.code) != OFF]
    return [replace(sign, code=alarm.code, name=alarm.name) for alarm in asked for sign in alarm.check(seen, run)]
