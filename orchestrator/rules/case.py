"""What a rule gets to see."""

from dataclasses import dataclass

from orchestrator.facts import Facts
from orchestrator.reading import Problem
from orchestrator.schema import RunConfig


@dataclass(frozen=True, kw_only=True)
class Case:
    """A recipe as resolved, what did not fit the schema, and the facts about this machine."""

    run: RunConfig
    facts: Facts
    problems: tuple[Problem, ...] = ()
    rejected: tuple[str, ...] = ()
    """Overrides that could not be applied."""

    def is_sound(self, path: str) -> bool:
        """False when the setting, or what it stands in, is already reported: its value here is only a default."""
        return not any(path == p.path or path.startswith(f"{p.path}.") for p in self.problems)
