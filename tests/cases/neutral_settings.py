"""The rows of recipes.yaml, and how their settings read: `t.pdb=1 g.gpus=[0..5] t.max_turns=5(server side)`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
OWN_KINDS = {"grpo": "grpo", "gdpo": "grpo", "rloo": "rloo", "async_grpo": "async_grpo", "ppo": "ppo", "ebft": "ebft"}
"""t.kind -> trainer.kind. gdpo is grpo with multi_objective_aggregation=normalize_then_sum, which its rows state."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """One setting: its text, and what stands in parentheses after it ('' = nothing)."""

    text: str
    note: str = ""

    @property
    def items(self) -> tuple[str, ...]:
        """The items of `[a,b]`; both ends of `[0..5]` are in it."""
        inside = self.text.removeprefix("[").removesuffix("]")
        if between := re.fullmatch(r"(\d+)\.\.(\d+)", inside):
            return tuple(str(i) for i in range(int(between[1]), int(between[2]) + 1))
        return tuple(re.split(r",(?![^(]*\))", inside)) if inside else ()

    @property
    def is_list(self) -> bool:
        return self.text.startswith("[")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One row."""

    id: str
    project: str
    title: str
    settings: Mapping[str, Value]
    expected: str
    """pass or error."""
    kinds: tuple[str, ...]
    """Families of the finding: of the error, or of the warning that a careful checker may give."""
    listening: tuple[int, ...]
    """Ports of this machine where somebody serves when the run starts."""

    @property
    def is_foreign(self) -> bool:
        """Trained by a program of another framework."""
        return self.title.endswith("(translated)") or self.text("t.kind") not in OWN_KINDS

    def text(self, key: str, default: str = "") -> str:
        return self.settings[key].text if key in self.settings else default

    def number(self, key: str, default: int) -> int:
        return int(self.text(key, str(default)))

    def indices(self, key: str) -> list[int]:
        return [int(item) for item in self.settings[key].items]

    def has(self, *keys: str) -> bool:
        return any(key in self.settings for key in keys)


def parse(settings: str) -> dict[str, Value]:
    """Key -> value. `unset` is left out; `unset(1)` is 1: the value that the recipe's program then takes."""
    found: dict[str, Value] = {}
    for word in re.split(r"\s+(?=[a-z]+\.[\w.+]+=)", settings.strip()):
        key, _, text = word.partition("=")
        with_note = re.fullmatch(r"([^\[(]+)\((.*)\)", text)
        value = Value(text=with_note[1], note=with_note[2]) if with_note else Value(text=text)
        if value.text == "unset" and value.note:
            value = Value(text=value.note)
        if value.text != "unset":
            found[key] = value
    return found


def recipes() -> list[Recipe]:
    rows: Sequence[Mapping[str, Any]] = yaml.safe_load((HERE / "recipes.yaml").read_text(encoding="utf-8"))
    return [
        Recipe(
            id=row["id"],
            project=row["project"],
            title=row["title"],
            settings=parse(row["settings"]),
            expected=row["expected"],
            kinds=tuple(row["kinds"]),
            listening=tuple(row.get("listening", ())),
        )
        for row in rows
    ]
