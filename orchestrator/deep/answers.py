"""What the children say about one job, as data that the deep rules judge."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards.checking.trial import Issue


@dataclass(frozen=True, kw_only=True)
class NoAnswer:
    """Why there is none, and the last lines that the child wrote."""

    problem: str


@dataclass(frozen=True, kw_only=True)
class TriedArguments:
    """What TRL's config class made of `trainer.args`."""

    refusal: str | None
    """TRL's or transformers' own sentence; None = they are taken."""
    needs_gpu: bool
    """They are refused for want of a GPU here."""


@dataclass(frozen=True, kw_only=True)
class CountedPrompts:
    """Prompt length in tokens -> rows, by split; or the reason why they cannot be counted."""

    train: Mapping[int, int] = field(default_factory=dict)
    heldout: Mapping[int, int] = field(default_factory=dict)
    tokenizer_problem: str = ""
    row_problem: str = ""

    @staticmethod
    def from_wire(raw: Mapping[str, Any]) -> "CountedPrompts":
        if "tokenizer" in raw or "row" in raw:
            return CountedPrompts(tokenizer_problem=raw.get("tokenizer", ""), row_problem=raw.get("row", ""))
        return CountedPrompts(train=_lengths(raw["train"]), heldout=_lengths(raw["heldout"]))


def _lengths(raw: Mapping[str, int]) -> dict[int, int]:
    return {int(length): rows for length, rows in raw.items()}  # JSON's keys are strings


@dataclass(frozen=True, kw_only=True)
class Answers:
    """None = not asked: offline rules have already said why, or the recipe has no such part."""

    arguments: TriedArguments | NoAnswer | None = None
    prompts: CountedPrompts | NoAnswer | None = None
    rewards: tuple[Issue, ...] | NoAnswer | None = None
    not_kept: str = ""
    """Why the lengths of the prompts could not be put where the rules about them look."""

    @staticmethod
    def of(raw: Mapping[str, Any]) -> "Answers":
        """From the children's JSON, by question; a NoAnswer stays one."""
        read: dict[str, Any] = {k: r if isinstance(r, NoAnswer) else READERS[k](r) for k, r in raw.items()}
        return Answers(**read)


def _issues(raw: Sequence[Mapping[str, Any]]) -> tuple[Issue, ...]:
    return tuple(Issue(**issue) for issue in raw)


READERS: Mapping[str, Callable[[Any], Any]] = {
    "arguments": lambda raw: TriedArguments(**raw),
    "prompts": CountedPrompts.from_wire,
    "rewards": _issues,
}
