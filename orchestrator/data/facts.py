"""What the rules and the lock file need to know about rows, without a tokenizer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from orchestrator.data.columns import Row

NUM_FIRST_ROWS = 3


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    columns: tuple[str, ...]
    rows: int
    longest_prompt_chars: int
    """Characters, not tokens; of a conversation the sum of its contents, without what a chat template adds."""
    fingerprint: str
    """sha256, in hex, of the rows and their order: equal on every machine, and for a file, whatever its layout."""
    first_rows: tuple[Row, ...]


def describe(rows: Sequence[Row]) -> DataFacts:
    """Facts about what `load_rows` returned: the rows a run would train on, not the file they came from."""
    digest = sha256()
    for row in rows:
        digest.update(json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return DataFacts(
        columns=tuple(sorted({name for row in rows for name in row})),
        rows=len(rows),
        longest_prompt_chars=max((prompt_chars(row["prompt"]) for row in rows), default=0),
        fingerprint=digest.hexdigest(),
        first_rows=tuple(rows[:NUM_FIRST_ROWS]),
    )


def prompt_chars(prompt: object) -> int:
    if isinstance(prompt, list):
        return sum(len(message["content"]) for message in prompt)
    return len(str(prompt))
