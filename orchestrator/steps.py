"""What a run consists of, as plain frozen data: launchers make steps, plan orders them, supervise carries them out."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class HttpProbe:
    """A GET that answers 200 once the service may be used."""

    url: str
    timeout_s: float = 2.0
    """Seconds that one attempt may take."""
    interval_s: float = 0.1
    """Seconds between two attempts."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One process of the run. With `ready` it is a service: others wait for it, and it is stopped at the end.

    Without `ready` it is a task: the run waits for its exit.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the orchestrator's own environment. Secrets are never in it: they are inherited by name."""
    after: tuple[str, ...] = ()
    """Names of the steps that must be ready (services) or finished (tasks) before this one starts."""
    ready: HttpProbe | None = None
    ready_timeout_s: float = 120.0
    """Seconds from the start until the service must be ready."""
    port: int | None = None
    """TCP port that this step's process tree must own once it is ready; None = it listens on none."""
    host: str = "127.0.0.1"
    restarts: int = 0
    """How often the step may be started again after an unexpected exit."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a run will start. Printing it starts nothing."""

    name: str
    steps: tuple[Step, ...]
    stop_grace_s: float = 3.0
    """Seconds between SIGTERM and SIGKILL, shared by all steps: the whole tear-down takes no longer."""
