"""The data columns among what TRL passes to a reward function, and a batch of them as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rewards.asking.score_reply import RewardError

NOT_COLUMNS = frozenset(
    {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
)
"""What TRL passes beside the data's columns."""


def data_columns(kwargs: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """What is left without TRL's own arguments."""
    return {name: values for name, values in kwargs.items() if name not in NOT_COLUMNS}


def encode_batch(
    prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Sequence[Any]], **more: Any
) -> bytes:
    """The body of a native request. Raises RewardError that names column and sample of what JSON cannot carry."""
    for name, column in columns.items():
        if isinstance(column, (str, bytes)) or not isinstance(column, Sequence):
            raise RewardError(f"column {name!r} is a {type(column).__name__}, not a list with one entry per sample")
    batch = {"prompts": list(prompts), "completions": list(completions)}
    request = {**batch, "columns": {name: list(column) for name, column in columns.items()}, **more}
    try:
        return json.dumps(request, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RewardError(f"this batch cannot be sent as JSON: {_culprit({**batch, **columns}) or error}") from error


def _culprit(columns: Mapping[str, Sequence[Any]]) -> str | None:
    for name, column in columns.items():
        for index, value in enumerate(column):
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                return (
                    f"column {name!r} of sample {index} holds a {type(value).__name__} ({error}); "
                    "convert it to text or numbers, or remove the column from the data"
                )
    return None
