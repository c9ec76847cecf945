"""A worker's results, sent every few milliseconds: a message per unit would cost more than a cheap function."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO

from rewards.contract import Failure
from rewards.running.execute import UnitResult
from rewards.running.wire import encode_reply

FLUSH_EVERY_S = 0.05  # of sync work: a message less for the parent, which needs a core for it
FLUSH_SOON_S = 0.005  # of async work: other requests wait for their share of a message


@dataclass
class _Pending:
    """Ended units of one part, not sent yet."""

    units: list[int] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)
    logs: dict[str, list[Any]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    seconds: float | None = None

    def add(self, unit: int, indices: Sequence[int], result: UnitResult) -> None:
        for key, column in result.logs.items():
            so_far = self.logs.setdefault(key, [])
            so_far += [None] * (len(self.values) - len(so_far))
            so_far += column
        self.units.append(unit)
        self.values += result.values
        for failure in result.failures:
            self.failures.append(failure)
            self.failed += indices if failure.index is None else (failure.index,)

    def to_wire(self, message: int, part: int) -> dict[str, Any]:
        return {
            "message": message,
            "part": part,
            "units": self.units,
            "values": self.values,
            "logs": {key: column + [None] * (len(self.values) - len(column)) for key, column in self.logs.items()},
            "failures": [asdict(failure) for failure in self.failures],
            "failed": self.failed,
            "seconds": self.seconds,
        }


class Replies:
    """Gathers results and writes them to a pipe."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._pending: dict[int, _Pending] = {}
        self._message = -1
        self._flushed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, message: int) -> None:
        self._message, self._flushed_at = message, time.monotonic()

    def add(self, part: int, unit: int, indices: Sequence[int], result: UnitResult) -> None:
        pending = self._pending.get(part)
        if pending is None:
            pending = self._pending[part] = _Pending()
        pending.add(unit, indices, result)

    def took(self, part: int, seconds: float) -> None:
        """The whole part, of which a result is still to be flushed, took so long."""
        self._pending[part].seconds = seconds

    def flush(self) -> None:
        self._flushed_at = time.monotonic()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        for part, results in pending.items():
            self._pipe.write(encode_reply(results.to_wire(self._message, part)))
        self._pipe.flush()

    def flush_if_due(self) -> None:
        """What ended in the milliseconds before a kill is scored again; whatever took longer is never lost."""
        if self._pending and time.monotonic() - self._flushed_at >= FLUSH_EVERY_S:
            self.flush()

    def flush_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            self._timer = loop.call_later(FLUSH_SOON_S, self.flush)
