"""What a deep rule gets to see."""

from dataclasses import dataclass

from orchestrator.deep.answers import Answers
from orchestrator.facts import Facts
from orchestrator.findings import Finding
from orchestrator.schema import RunConfig


@dataclass(frozen=True, kw_only=True)
class DeepCase:
    """A recipe that the offline rules have seen, and what the children said about it."""

    run: RunConfig
    facts: Facts
    offline: tuple[Finding, ...]
    """What the offline rules found."""
    answers: Answers
