"""What a reward server answers to a request for scores, held against the batch that was sent."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class RewardError(Exception):
    """No usable scores. `status` is None when there was no HTTP answer; `errors` are the server's, if it sent any."""

    def __init__(self, message: str, status: int | None = None, errors: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.status, self.errors = status, tuple(errors)


@dataclass(frozen=True)
class ScoreReply:
    """Scores of a batch, in its order. None: not scored (aborted, failed, masked, or not this function's)."""

    components: dict[str, list[float | None]]
    rewards: list[float | None]
    """The weighted total, or what the server's post-process hook made of it."""
    errors: list[dict[str, Any]]
    logs: dict[str, list[Any]]
    """`function/key` -> one value per sample."""
    aborted: list[int]
    seconds: float
    failed: list[int] = field(default_factory=list)
    """Samples whose generation failed."""
    raw: list[float | None] | None = None
    """What the hook calls the raw rewards; None without a hook."""


def parse_reply(raw: Mapping[str, Any], count: int) -> ScoreReply:
    """Raises RewardError: a short or infinite reply is no reply."""
    for key, kind in (("components", dict), ("rewards", list), ("errors", list), ("logs", dict), ("aborted", list)):
        if not isinstance(raw.get(key), kind):
            raise RewardError(f"the reply has no valid {key!r}: is this a reward server of ours? {str(raw)[:200]}")
    for name, column in raw["components"].items():
        _check_numbers(f"components[{name!r}]", column, count)
    _check_numbers("rewards", raw["rewards"], count)
    if raw.get("raw") is not None:
        _check_numbers("raw", raw["raw"], count)
    return ScoreReply(
        components=raw["components"],
        rewards=raw["rewards"],
        errors=raw["errors"],
        logs=raw["logs"],
        aborted=raw["aborted"],
        seconds=float(raw.get("seconds", 0.0)),
        failed=list(raw.get("failed", ())),
        raw=raw.get("raw"),
    )


def _check_numbers(name: str, column: Any, count: int) -> None:
    if not isinstance(column, list) or len(column) != count:
        got = len(column) if isinstance(column, list) else type(column).__name__
        raise RewardError(f"the reply's {name} has {got} entries for {count} samples")
    for index, value in enumerate(column):
        if value is not None and (not isinstance(value, float) or not math.isfinite(value)):
            raise RewardError(f"the reply's {name} holds {value!r} for sample {index} instead of a finite number")
