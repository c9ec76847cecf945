"""One function over one batch, whose units are answered by different workers, until the result is complete."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from rewards.batch import Batch
from rewards.calling.describe import FunctionInfo
from rewards.contract import Failure, FailureKind
from rewards.running.execute import failed_unit, samples
from rewards.scoring import FunctionScores


@dataclass(eq=False)
class Call:
    """`done` gets the scores when every unit is settled, whatever the order."""

    function: FunctionInfo
    batch: Batch
    units: Sequence[tuple[int, ...]]
    done: "asyncio.Future[FunctionScores]"

    def __post_init__(self) -> None:
        self._owed = set(range(len(self.units)))
        self._values: list[float | None] = [None] * len(self.batch)
        self._logs: dict[str, list[Any]] = {}
        self._failures: list[tuple[int, Failure]] = []
        self._failed: set[int] = set()
        self._end_if_complete()

    def settle(self, units: Sequence[int], reply: dict[str, Any]) -> None:
        """Keep what a worker says about these units (worker.py); nothing any more when the call has ended.

        Raises for what no worker says, and then keeps nothing of it.
        """
        if self.done.done():
            return
        indices = [index for unit in units for index in self.units[unit]]
        failures = [Failure(**failure) for failure in reply["failures"]]
        if {len(indices)} != set(map(len, (reply["values"], *reply["logs"].values()))):
            raise ValueError(f"there are not {len(indices)} entries in each of its lists")
        failed = set(reply["failed"])
        if not set(map(type, reply["values"])) <= {float, NoneType} or (failed and not failed <= set(indices)):
            raise ValueError("its values are no rewards, or those of other samples")
        for index, value in zip(indices, reply["values"], strict=True):
            self._values[index] = value
        for key, column in reply["logs"].items():
            whole = self._logs.setdefault(key, [None] * len(self.batch))
            for index, value in zip(indices, column, strict=True):
                whole[index] = value
        self._note(units[0], failures, reply["failed"])
        self._owed.difference_update(units)
        self._end_if_complete()

    def fail(self, unit: int, message: str, kind: FailureKind) -> None:
        indices = self.units[unit]
        self._note(unit, failed_unit(self.function.name, indices, message, kind).failures, indices)
        self._owed.discard(unit)
        self._end_if_complete()

    def fail_rest(self, reason: str) -> None:
        """For when nobody can answer any more."""
        for unit in sorted(self._owed):
            where = samples(self.units[unit])
            self.fail(unit, f"{self.function.name} could not score {where}: {reason}", "unavailable")

    def _note(self, unit: int, failures: Iterable[Failure], failed: Iterable[int]) -> None:
        self._failures += [(unit if f.index is None else f.index, f) for f in failures]
        self._failed.update(failed)

    def _end_if_complete(self) -> None:
        if self._owed or self.done.done():  # done already: the client has gone
            return
        failures = [failure for _, failure in sorted(self._failures, key=lambda entry: entry[0])]
        self.done.set_result(FunctionScores(self._values, self._logs, failures, frozenset(self._failed)))
