"""What a reward server of ours answers, held against the batch that was sent: every field is checked here, once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards.contract import finite_number, short_repr
from rewards.printing import printable


class RewardError(Exception):
    """No usable scores. `status` is None when there was no HTTP answer; `errors` are the server's, if it sent any.

    The message quotes servers, so what is not printable in it is escaped.
    """

    def __init__(self, message: str, status: int | None = None, errors: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(printable(message))
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
            raise RewardError(f"the reply has no valid {key!r}: is this a reward server of ours? {short_repr(raw)}")
    return ScoreReply(
        components={
            name: _numbers(f"components[{name!r}]", column, count) for name, column in raw["components"].items()
        },
        rewards=_numbers("rewards", raw["rewards"], count),
        errors=[_error(error, count) for error in raw["errors"]],
        logs={name: _column(f"logs[{name!r}]", column, count) for name, column in raw["logs"].items()},
        aborted=_samples("aborted", raw["aborted"], count),
        seconds=_seconds(raw.get("seconds", 0.0)),
        failed=_samples("failed", raw.get("failed", []), count),
        raw=None if raw.get("raw") is None else _numbers("raw", raw["raw"], count),
    )


@dataclass(frozen=True, kw_only=True)
class Described:
    """What whoever asks a server has to know of one of its functions."""

    name: str
    shape: str
    wants_completion_ids: bool
    required_columns: tuple[str, ...] = ()
    only: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def parse_functions(info: Any) -> list[Described]:
    """Of /info. Raises RewardError."""
    listed = info.get("functions") if isinstance(info, Mapping) else None
    if not isinstance(listed, list):
        raise RewardError("its /info lists no functions: is this a reward server of ours, of this version?")
    return [_described(one) for one in listed]


def _described(one: Any) -> Described:
    fields = one if isinstance(one, Mapping) else {}
    columns, only = fields.get("required_columns", []), fields.get("only", {})
    sound = (
        all(isinstance(fields.get(key), str) for key in ("name", "shape"))
        and isinstance(fields.get("wants_completion_ids"), bool)
        and isinstance(columns, list)
        and all(isinstance(name, str) for name in columns)
        and isinstance(only, Mapping)
        and all(isinstance(values, list) for values in only.values())
    )
    if not sound:
        raise RewardError(f"its /info describes a function as {short_repr(one)}: no reward server of this version")
    return Described(
        name=fields["name"],
        shape=fields["shape"],
        wants_completion_ids=fields["wants_completion_ids"],
        required_columns=tuple(columns),
        only=only,
    )


def json_number(value: Any) -> float | None:
    """A finite number; None for anything else, true and false included."""
    return None if isinstance(value, bool) else finite_number(value)[0]


def _column(name: str, column: Any, count: int) -> list[Any]:
    if not isinstance(column, list) or len(column) != count:
        got = len(column) if isinstance(column, list) else type(column).__name__
        raise RewardError(f"the reply's {name} has {got} entries for {count} samples")
    return column


def _numbers(name: str, column: Any, count: int) -> list[float | None]:
    for index, value in enumerate(_column(name, column, count)):
        if value is not None and (not isinstance(value, float) or not math.isfinite(value)):
            raise RewardError(
                f"the reply's {name} holds {short_repr(value)} for sample {index} instead of a finite number"
            )
    return list(column)


def _samples(name: str, found: Any, count: int) -> list[int]:
    if not isinstance(found, list) or not all(_is_sample(index, count) for index in found):
        raise RewardError(f"the reply's {name} is {short_repr(found)}, not a list of samples below {count}")
    return found


def _is_sample(index: Any, count: int) -> bool:
    return isinstance(index, int) and not isinstance(index, bool) and 0 <= index < count


def _error(error: Any, count: int) -> dict[str, Any]:
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise RewardError(f"the reply's errors hold {short_repr(error)}: not an object with a message")
    if error.get("index") is not None and not _is_sample(error["index"], count):
        raise RewardError(f"the reply's errors name sample {short_repr(error['index'])} of {count}")
    return error


def _seconds(value: Any) -> float:
    number = json_number(value)
    if number is None or number < 0:
        raise RewardError(f"the reply's seconds are {short_repr(value)}, not a number of seconds")
    return number
