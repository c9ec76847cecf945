"""Rows that a reward function is tried with: the first ones of a JSONL file, and made-up ones."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rewards.batch import GOLD_COLUMNS
from rewards.calling.targets import near
from rewards.checking.made_up import Row

LONGEST_LINE = 16 * 2**20  # bytes; a file without line ends is not read whole
NO_NAMES: Mapping[str, str] = {}
SUMS = ((17, 25), (140, 260))


class RowsError(Exception):
    """A file of rows that cannot be used: which line, what, and what was expected."""


def read_rows(path: Path, count: int, prompt: str = "prompt", columns: Mapping[str, str] = NO_NAMES) -> list[Row]:
    """The first `count` rows. Raises RowsError.

    `prompt`: the key that holds a text or a list of messages; every other key is a column. `columns`: our name of a
    column -> the file's name, as `data.columns` in a recipe.
    """
    try:
        with path.open("rb") as file:
            return [_row(f"--data {path}: line {n}", n, line, prompt, columns) for n, line in _lines(path, file, count)]
    except OSError as error:
        raise RowsError(f"--data {path}: cannot be read: {error.strerror}") from error


def _lines(path: Path, file: Any, count: int) -> Iterator[tuple[int, bytes]]:
    number = found = 0
    while found < count and (line := file.readline(LONGEST_LINE)):
        number += 1
        if line.strip():
            found += 1
            yield number, line
    if not found:
        raise RowsError(f"--data {path}: no rows")


def _row(where: str, number: int, line: bytes, key: str, columns: Mapping[str, str]) -> Row:
    try:
        raw = json.loads(line)
    except ValueError as error:
        raise RowsError(f"{where} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise RowsError(f"{where} is a {type(raw).__name__}, expected an object")
    for flag, name in [("--prompt NAME", key), *((f"--column {ours}=NAME", name) for ours, name in columns.items())]:
        if name not in raw:
            raise RowsError(f"{where} has no {name!r}{near(name, raw)}: {flag}")
    prompt = raw.pop(key)
    if not isinstance(prompt, str) and not (isinstance(prompt, list) and all(isinstance(m, dict) for m in prompt)):
        raise RowsError(f"{where}: {key!r} must be a text or a list of messages, not {type(prompt).__name__}")
    renamed = {ours: raw[name] for ours, name in columns.items()}
    others = {name: value for name, value in raw.items() if name not in columns.values()}
    return Row(label=f"row {number}", prompt=prompt, columns={**others, **renamed})


def canned_rows(*, numbers: bool = False, chat: bool = False) -> list[Row]:
    """Sums, with the gold answer under every name that is usual.

    `numbers`: it is a number instead of text; `chat`: prompts and completions are messages.
    """
    rows = []
    for a, b in SUMS:
        question = f"What is {a}+{b}?"
        rows.append(
            Row(
                label=f"sum {a}+{b}",
                prompt=[{"role": "user", "content": question}] if chat else question,
                columns=dict.fromkeys(GOLD_COLUMNS, a + b if numbers else str(a + b)),
            )
        )
    return rows


def as_chat(row: Row) -> Row:
    """The row as a recipe with `data.chat` has it: the prompt is the user's message."""
    return replace(row, prompt=[{"role": "user", "content": row.prompt}])


def with_text_golds(rows: Iterable[Row]) -> list[Row]:
    """The same rows, with gold answers that are numbers turned to text."""
    return [
        Row(
            label=row.label,
            prompt=row.prompt,
            columns={
                name: str(value) if name in GOLD_COLUMNS and isinstance(value, (int, float)) else value
                for name, value in row.columns.items()
            },
        )
        for row in rows
    ]


def number_golds(rows: Iterable[Row]) -> list[tuple[str, int | float]]:
    """(column, value) of the gold answers that are numbers."""
    return [
        (name, row.columns[name])
        for row in rows
        for name in GOLD_COLUMNS
        if isinstance(row.columns.get(name), (int, float)) and not isinstance(row.columns[name], bool)
    ]
