"""What the event loop acts on: every part of the world is a parameter, so that tests can replay a history."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.steps import Step
from orchestrator.supervise import events as ev
from orchestrator.supervise.outcome import Observer


class Running(Protocol):
    """A started step."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None:
        """Exit code, None while it runs."""


class Spawner(Protocol):
    def start(self, step: Step) -> Running:
        """Start the step, if need be again. Raises SpawnError."""


class Prober(Protocol):
    def probe(self, step: Step, pid: int) -> None:
        """Begin one attempt; post Ready, ProbeFailed or Impostor when it is over."""

    def ask(self, step: Step, pid: int) -> None:
        """The same of a step that was ready before: its port is known to be its own."""


class Reaper(Protocol):
    def look(self) -> None:
        """Remember which processes belong to the run. Called twice a second."""

    def begin(self, grace_s: float) -> None: ...
    def hurry(self) -> None: ...
    def step(self) -> bool:
        """Go on ending them; True when none is left. Called after `begin`, until then."""


class Inbox(Protocol):
    def get(self, timeout_s: float) -> ev.Event | None:
        """The next event that a thread or a signal handler has posted; None after the timeout."""


class Watch(Protocol):
    @property
    def ask_every_s(self) -> float | None:
        """How often the loop should ask the services whether they still answer; None = not at all."""

    def look(self, state: ev.RunState, now: float) -> Sequence[ev.Alarmed]:
        """Alarms that begin now. Called twice a second while tasks run."""


@dataclass(kw_only=True)
class World:
    """What the loop acts on."""

    clock: Callable[[], float]
    inbox: Inbox
    spawner: Spawner
    prober: Prober
    reaper: Reaper
    open_gate: Callable[[], None]
    """Begin the handshake; GatePassed or GateFailed is posted when it is over."""
    tail: Callable[[str], tuple[str, ...]]
    """Last log lines of a step."""
    observer: Observer
    watch: Watch | None = None
