"""What functions of vime and slime are called with: `args` and `Sample`, with the fields that exist for a reward."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

from rewards.batch import Text


@dataclass(kw_only=True)
class Sample:
    """One prompt with its completion.

    Fields of a rollout that no reward function can need (log-probs, routing, weight versions) are not here: to read one
    is an AttributeError, not a None that looks like a value.
    """

    class Status(Enum):
        """What became of the completion."""

        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    prompt: Text
    response: str
    label: Any = None
    """The gold answer, of the type that the data have."""
    group_index: str | int | None = None
    index: int | None = None
    """Position in the batch that is scored."""
    status: Status = Status.COMPLETED
    tokens: list[int] | None = None
    """The completion's token ids, where the caller sent them; the prompt's are not known here."""
    response_length: int | None = None
    """Tokens."""
    reward: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    """The row's other columns; of a column `metadata` that is an object, also its entries."""

    def get_reward_value(self, args: Any) -> Any:
        return self.reward if not args.reward_key else self.reward[args.reward_key]


class MissingParamError(AttributeError):
    """A function reads a setting that its params do not hold; `hasattr` and `getattr` with a default work."""


class Args(SimpleNamespace):
    """The `params` of the function, under the names that it reads."""

    def __getattr__(self, name: str) -> Any:
        raise MissingParamError(f"args has no {name!r}: give it in the function's params (it has {sorted(vars(self))})")


def make_args(params: Mapping[str, Any], key: str | None) -> Args:
    return Args(**{"reward_key": key, **params})
