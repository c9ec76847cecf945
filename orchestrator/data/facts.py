"""What the rules and the lock file need to know about rows, without a tokenizer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from orchestrator.data.columns import Row

NUM_FIRST_ROWS = 3
MOST_VALUES = 50
"""A column with more of them is free text, not a choice."""


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    columns: tuple[str, ...]
    rows: int
    longest_prompt_chars: int
    """Characters, not tokens; of a conversation the sum of its contents, without what a chat template adds."""
    fingerprint: str
    """sha256, in hex, of the rows and their order: equal on every machine, and for a file, whatever its layout."""
    first_rows: tuple[Row, ...]
    text_chars: Mapping[str, int] = field(default_factory=dict)
    """Column of strings -> characters of the median row; the prompt is not among them."""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Column of strings -> its distinct values, sorted, where there are at most MOST_VALUES."""


def describe(rows: Sequence[Row]) -> DataFacts:
    """Facts about what `load_rows` returned: the rows a run would train on, not the file they came from."""
    digest, encoder = sha256(), json.JSONEncoder(sort_keys=True, separators=(",", ":"))
    for row in rows:
        digest.update(encoder.encode(row).encode() + b"\n")
    columns = tuple(sorted({name for row in rows for name in row}))
    texts = {name: found for name in columns if name != "prompt" and (found := _strings(rows, name))}
    values = {name: distinct for name, found in texts.items() if len(distinct := set(found)) <= MOST_VALUES}
    return DataFacts(
        columns=columns,
        rows=len(rows),
        longest_prompt_chars=max((prompt_chars(row["prompt"]) for row in rows), default=0),
        fingerprint=digest.hexdigest(),
        first_rows=tuple(rows[:NUM_FIRST_ROWS]),
        text_chars={name: sorted(map(len, found))[(len(found) - 1) // 2] for name, found in texts.items()},
        values={name: tuple(sorted(distinct)) for name, distinct in values.items()},
    )


def prompt_chars(prompt: object) -> int:
    if isinstance(prompt, list):
        return sum(len(message["content"]) for message in prompt)
    return len(str(prompt))


def _strings(rows: Sequence[Row], name: str) -> list[str]:
    """The column's values, nulls aside; [] where it holds anything but strings."""
    found = [row.get(name) for row in rows]
    texts = [value for value in found if isinstance(value, str)]
    return texts if len(texts) + found.count(None) == len(found) else []
