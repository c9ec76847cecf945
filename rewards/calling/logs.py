"""What a function logs beside its rewards: TRL's `log_extra` and `log_metric`, and values that JSON can carry."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from rewards.contract import plain_text, short_repr

LONGEST_INT_BITS = 1024  # as many as a float reaches; Python refuses to write out one of 4301 digits


@dataclass
class LogSink:
    """What a function hands to TRL's `log_extra` (one value per sample) and `log_metric` (one value per call)."""

    count: int
    logs: dict[str, list[Any]] = field(default_factory=dict)

    def extra(self, column: str, values: Iterable[Any]) -> None:
        listed, column = [loggable(value) for value in values], plain_text(column)
        if len(listed) != self.count:
            raise ValueError(f"log_extra({column!r}) got {len(listed)} values for {self.count} samples")
        self.logs[column] = listed

    def metric(self, name: str, value: Any) -> None:
        self.logs[plain_text(name)] = [loggable(value)] * self.count


def loggable(value: Any) -> float | int | str | bool | None:
    """A value that JSON can carry: finite numbers and strings as they are, NaN as None, the rest as repr."""
    if type(value) is float:  # nearly every one
        return value if isfinite(value) else None
    try:
        if getattr(value, "shape", None) == () and hasattr(value, "item"):
            value = value.item()
    except Exception:  # a tensor without data, most of all
        return short_repr(value)
    if value is None or type(value) is bool:
        return value
    # The methods of the built-in types also where a subclass has its own: the result is of exactly that type.
    if isinstance(value, float):
        return loggable(float.__pos__(value))
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and int.bit_length(value) <= LONGEST_INT_BITS:
        return int.__pos__(value)
    return short_repr(value)
