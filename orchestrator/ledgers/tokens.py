"""Token budgets: what a prompt, a completion and their consumers need. Pure data for the LEN rules."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.facts import Facts
from orchestrator.schema import RunConfig


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The prompts that training would see: as counted, or only as promised."""

    promised: int
    """`limits.prompt_length`."""
    counted: Mapping[int, int] | None
    """Tokens -> rows, of the rows that are kept; None = not counted."""

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt that is known or allowed."""
        return self.promised if self.counted is None else max(self.counted, default=0)

    def beyond(self, room: int) -> int:
        """Rows whose prompt has more than `room` tokens; 0 where nothing is counted."""
        return sum(rows for length, rows in (self.counted or {}).items() if length > room)


def prompts(run: RunConfig, facts: Facts) -> Prompts:
    """Rows above the promise are dropped with `data.long_prompts: drop`; otherwise all of them count."""
    counted: Mapping[int, int] | None = None if isinstance(facts.prompt_tokens, str) else facts.prompt_tokens
    if counted is not None and run.data.long_prompts == "drop":
        counted = {length: rows for length, rows in counted.items() if length <= run.limits.prompt_length}
    return Prompts(promised=run.limits.prompt_length, counted=counted)


COMPLETION = "limits.completion_length"
"""The setting that the budgets count with: where the trainer's own field differs, LEN001 says so."""
