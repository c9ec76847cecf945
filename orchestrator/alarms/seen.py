"""What alarms look at, and what they say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TRAINER = "trainer"
"""The step of the plan that trains."""


@dataclass(frozen=True, kw_only=True)
class Silence:
    """A running service that does not answer its health address."""

    seconds: float
    """Since its last answer."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known of a run at one moment of its training."""

    lines: Sequence[Mapping[str, Any]] = ()
    """The last lines of metrics.jsonl, oldest first: one per logged training step."""
    doing: str = ""
    """What the trainer last said it began; "" before it has said anything."""
    quiet_s: float = 0.0
    """Seconds since then, or since the trainer's start."""
    silent: Mapping[str, Silence] = field(default_factory=dict)
    """By service."""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """Something that an alarm sees."""

    problem: str
    """What, and the values on both sides."""
    why: str
    fix: str
    process: str = TRAINER
    """The step that it is about: its log is shown."""
    code: str = ""
    """Filled in from the table's entry, as is `name`."""
    name: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.code} {self.name}: {self.problem}. {self.why} fix: {self.fix} (orchestrate rules {self.code})"
