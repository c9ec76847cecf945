"""A batch of samples, and how it is cut into the units that a function is called with."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards.contract import Granularity

Text = str | list[dict[str, Any]]
"""Plain text, or a list of chat messages (`role`, `content`)."""

STATUSES = ("completed", "truncated", "aborted", "failed")

GOLD_COLUMNS = (
    "answer",
    "solution",
    "gold",
    "gold_answer",
    "golden_answer",
    "golden_response",
    "ground_truth",
    "reference",
    "reference_answer",
    "expected",
    "label",
    "target",
)
"""Names that data sets give to the right answer."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Samples as columns. Every list has one entry per sample."""

    prompts: Sequence[Text]
    completions: Sequence[Text]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    group_ids: Sequence[str | int] | None = None
    statuses: Sequence[str] | None = None
    evaluation: bool = False
    """Held-out rows: functions with an `eval_key` count by it."""

    def __len__(self) -> int:
        return len(self.prompts)

    def take(self, indices: Sequence[int]) -> "Batch":
        """The same columns, cut to these samples in this order."""
        return Batch(
            prompts=[self.prompts[i] for i in indices],
            completions=[self.completions[i] for i in indices],
            columns={name: [column[i] for i in indices] for name, column in self.columns.items()},
            group_ids=None if self.group_ids is None else [self.group_ids[i] for i in indices],
            statuses=None if self.statuses is None else [self.statuses[i] for i in indices],
            evaluation=self.evaluation,
        )

    def cut(self, start: int, stop: int) -> "Batch":
        """The same for neighbours, quicker: a worker cuts out every sample of a per-sample function."""
        return Batch(
            prompts=self.prompts[start:stop],
            completions=self.completions[start:stop],
            columns={name: column[start:stop] for name, column in self.columns.items()},
            group_ids=None if self.group_ids is None else self.group_ids[start:stop],
            statuses=None if self.statuses is None else self.statuses[start:stop],
            evaluation=self.evaluation,
        )

    def to_wire(self) -> dict[str, Any]:
        """The keyword arguments that rebuild this batch, for JSON."""
        return {
            "prompts": self.prompts,
            "completions": self.completions,
            "columns": self.columns,
            "group_ids": self.group_ids,
            "statuses": self.statuses,
            "evaluation": self.evaluation,
        }


def batch_problem(batch: Batch) -> str | None:
    """What makes this batch unusable, or None: lengths that differ, unknown statuses."""
    lengths = {"prompts": len(batch.prompts), "completions": len(batch.completions)}
    lengths |= {f"columns.{name}": len(column) for name, column in batch.columns.items()}
    lengths |= {"group_ids": len(batch.group_ids)} if batch.group_ids is not None else {}
    lengths |= {"statuses": len(batch.statuses)} if batch.statuses is not None else {}
    if len(set(lengths.values())) > 1:
        return "all lists must have the same length, got " + ", ".join(f"{k}: {v}" for k, v in lengths.items())
    for index, status in enumerate(batch.statuses or ()):
        if status not in STATUSES:
            return f"statuses[{index}] is {status!r}, expected one of {STATUSES}"
    return None


def samples_with(status: str, batch: Batch) -> list[int]:
    return [i for i, each in enumerate(batch.statuses or ()) if each == status]


def gold_column(columns: Container[str]) -> str | None:
    """The column that holds the right answers, by its name: `label`, else the first one that there is."""
    return next((name for name in ("label", *GOLD_COLUMNS) if name in columns), None)


def golds_of(batch: Batch) -> list[Any] | None:
    """What functions and servers of other frameworks get as gold answers."""
    column = gold_column(batch.columns)
    return None if column is None else list(batch.columns[column])


def plan_units(
    batch: Batch, granularity: Granularity, only: Mapping[str, Sequence[Any]] | None = None
) -> list[tuple[int, ...]]:
    """Sample indices of each call: aborted and failed samples, which have nothing that could be scored, and those that
    `only` leaves out in none, every other one in one.

    Groups keep the order of their first sample; their samples need not be contiguous.
    """
    skipped = {i for i, status in enumerate(batch.statuses or ()) if status in ("aborted", "failed")}
    chosen = (only or {}).items()
    live = [
        i
        for i in range(len(batch))
        if i not in skipped and all(batch.columns[column][i] in values for column, values in chosen)
    ]
    if granularity == "sample":
        return [(i,) for i in live]
    if granularity == "batch" or batch.group_ids is None:
        return [tuple(live)] if live else []
    groups: dict[str | int, list[int]] = {}
    for index in live:
        groups.setdefault(batch.group_ids[index], []).append(index)
    return [tuple(members) for members in groups.values()]
