"""The alphabet of the state machine: what can happen to a run, and what it can ask for."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.supervise.outcome import Status


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Started:
    step: str
    pid: int


@dataclass(frozen=True)
class StartFailed:
    step: str
    reason: str


@dataclass(frozen=True)
class Ready:
    """The probe answered, and the port is the step's own. The pid tells an answer to an earlier start apart."""

    step: str
    pid: int


@dataclass(frozen=True)
class ProbeFailed:
    step: str
    pid: int
    reason: str


@dataclass(frozen=True)
class Impostor:
    """The probe answered, but not from the step's own process: waiting longer would not help."""

    step: str
    pid: int
    reason: str


@dataclass(frozen=True)
class Exited:
    """Code as subprocess gives it: -n when signal n ended the process."""

    step: str
    code: int


@dataclass(frozen=True)
class GatePassed:
    pass


@dataclass(frozen=True)
class GateFailed:
    reason: str


@dataclass(frozen=True)
class Signal:
    number: int


@dataclass(frozen=True)
class Alarmed:
    """An alarm begins to hold (orchestrator/alarms); `stop`: it ends the run."""

    step: str
    reason: str
    stop: bool


@dataclass(frozen=True)
class AllStopped:
    """No process of the run is left, or none that can be ended."""


Probed = Ready | ProbeFailed | Impostor
Event = Tick | Started | StartFailed | Probed | Exited | GatePassed | GateFailed | Signal | Alarmed | AllStopped


@dataclass(frozen=True)
class Start:
    step: str


@dataclass(frozen=True)
class Probe:
    step: str
    pid: int


@dataclass(frozen=True)
class Ask:
    """Does a service that is ready still answer?"""

    step: str
    pid: int


@dataclass(frozen=True)
class OpenGate:
    pass


@dataclass(frozen=True)
class StopAll:
    grace_s: float


@dataclass(frozen=True)
class Hurry:
    """Grant no more grace."""


Action = Start | Probe | Ask | OpenGate | StopAll | Hurry


class Phase(StrEnum):
    """SERVICES come up, the GATE asks whether they agree, TASKS run, everything is STOPPING, DONE."""

    SERVICES = "services"
    GATE = "gate"
    TASKS = "tasks"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class StepState:
    """What the machine knows of one step. Times are seconds of the machine's clock."""

    status: Status = Status.WAITING
    pid: int | None = None
    started: float | None = None
    ended: float | None = None
    restarts: int = 0
    due: float = 0.0
    """Not to be started (waiting), probed (starting) or asked (ready) before."""
    probing: bool = False
    answered: float = 0.0
    """When a probe last succeeded."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The first thing that went wrong."""

    code: int
    step: str | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Everything that the event loop knows."""

    steps: Mapping[str, StepState]
    phase: Phase = Phase.SERVICES
    phase_began: float = 0.0
    failure: Failure | None = None
    started: tuple[str, ...] = ()
    """In the order of their first start."""
