"""What a run shows while it goes on, and what it leaves."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Status(StrEnum):
    """Where one step stands."""

    WAITING = "waiting"
    """For the steps that it comes after, for the gate, or for the back-off of a restart."""
    STARTING = "starting"
    READY = "ready"
    RUNNING = "running"
    STOPPED = "stopped"
    """A task that has ended well, or anything that was taken down."""
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class StepView:
    """One line of a progress display."""

    name: str
    status: Status
    seconds: float
    """Since its (last) start; of what has ended, from start to end; 0 before."""
    pid: int | None
    restarts: int
    reason: str
    """Why the last probe failed, or why the step did; "" when nothing is amiss."""


class Observer(Protocol):
    """Is told what happens, in the main thread. It should return at once, and must not raise."""

    def event(self, kind: str, step: str | None, detail: str) -> None:
        """Kinds: start started ready exited restart gate gate-passed alarm stopping signal failed stopped."""

    def tick(self, states: Mapping[str, StepView]) -> None:
        """About five times a second."""


class SilentObserver:
    """Shows nothing."""

    def event(self, kind: str, step: str | None, detail: str) -> None:
        pass

    def tick(self, states: Mapping[str, StepView]) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended. The first failure decides: what breaks after it, breaks because of it."""

    code: int
    """0 ok, 1 a task (or a service under it) failed, 3 a service did not start or agree, 128+n signal n."""
    failed: str | None
    """Name of the step that failed; None on success, on a signal, and when the gate failed."""
    reason: str
    """"" on success."""
    log_path: Path | None
    log_tail: tuple[str, ...]
    """The failed step's last lines when it failed, before the tear-down added to them."""
    started: tuple[str, ...]
    """Steps in the order of their first start."""
    seconds_by_step: Mapping[str, float]
    stop_s: float
    """Seconds that the tear-down took."""
    left: tuple[int, ...] = ()
    """Processes that even SIGKILL did not end."""
    signalled: int | None = None
    """The last signal received, also one that came after success, during the tear-down: a sweep should stop then."""
