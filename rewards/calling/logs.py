"""What a function logs beside its rewards: TRL's `log_extra` and `log_metric`, and values that JSON can carry."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from rewards.contract import short_repr


@dataclass
class LogSink:
    """What a function hands to TRL's `log_extra` (one value per sample) and `log_metric` (one value per call)."""

    count: int
    logs: dict[str, list[Any]] = field(default_factory=dict)

    def extra(self, column: str, values: Iterable[Any]) -> None:
        listed = [loggable(value) for value in values]
        if len(listed) != self.count:
            raise ValueError(f"log_extra({column!r}) got {len(listed)} values for {self.count} samples")
        self.logs[column] = listed

    def metric(self, name: str, value: Any) -> None:
        self.logs[name] = [loggable(value)] * self.count


def loggable(value: Any) -> float | int | str | bool | None:
    """A value that JSON can carry: finite numbers and strings as they are, NaN as None, the rest as repr."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if value is None or isinstance(value, (int, str)) else short_repr(value)
