"""What a rule gets to see."""

from dataclasses import dataclass

from orchestrator.facts import Facts
from orchestrator.resolve import Problem
from orchestrator.schema import RunConfig


@dataclass(frozen=True, kw_only=True)
class Case:
    """A recipe as resolved, what did not fit the schema, and the facts about this machine."""

    run: RunConfig
    facts: Facts
    problems: tuple[Problem, ...] = ()
    rejected: tuple[str, ...] = ()
    """Overrides that could not be applied."""
