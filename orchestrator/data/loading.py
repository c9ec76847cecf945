"""One door to every source of prompts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.data.arithmetic import arithmetic_rows
from orchestrator.data.columns import Row, rename, renaming
from orchestrator.data.errors import ROWS_KEYS, DataError, nearest
from orchestrator.data.jsonl import jsonl_rows
from orchestrator.data.reasoning_gym import reasoning_gym_rows

SOURCES = ("arithmetic", "jsonl", "reasoning_gym")
LATER_SOURCES = ("hub",)
SPLITS = ("train", "heldout")
READ_BY = {"path": "jsonl", "heldout_path": "jsonl", "task": "reasoning_gym", "params": "reasoning_gym"}
"""Setting -> the only source that reads it."""


def load_rows(
    source: str,
    *,
    split: str,
    rows: int | None,
    other_rows: int | None = 0,
    seed: int,
    path: str | Path | None = None,
    heldout_path: str | Path | None = None,
    task: str | None = None,
    params: Mapping[str, Any] | None = None,
    prompt: str = "prompt",
    columns: Mapping[str, str] | None = None,
    chat: bool = False,
) -> list[Row]:
    """Rows whose `prompt` is text or a list of messages, plus the source's other columns (`answer`, ...).

    `rows=None` means all there are; `other_rows` is how many the other split has: reasoning_gym makes both, none twice.
    `prompt` names the source's prompt column, `columns` maps our names to the source's. With `chat` a text prompt
    becomes one user message. `seed` decides which rows and in what order; the same arguments give the same rows on
    every machine. Raises DataError on anything that cannot be used.
    """
    _known_source(source)
    if split not in SPLITS:
        raise DataError(f"data.split = {split!r} is not a split; {nearest(split, SPLITS)}")
    if rows is not None and rows < 1:
        raise DataError(f"{ROWS_KEYS[split]} = {rows}; fix: a positive number, or null for all rows")
    _nothing_unread(source, {"path": path, "heldout_path": heldout_path, "task": task, "params": params})
    columns = columns or {}
    if source == "jsonl":
        key, chosen = _file_of(split, path, heldout_path)
        loaded = jsonl_rows(chosen, rows=rows, seed=seed, prompt=prompt, columns=columns, key=key, split=split)
    else:
        if source == "reasoning_gym":
            loaded = reasoning_gym_rows(task, params or {}, split=split, rows=rows, other_rows=other_rows, seed=seed)
        else:
            loaded = arithmetic_rows(split, rows, seed)
        renamed = renaming(set(loaded[0]), prompt=prompt, columns=columns, where=f"source {source}")
        loaded = [rename(row, renamed) for row in loaded]
    return [_as_chat(row) for row in loaded] if chat else loaded


def _known_source(source: str) -> None:
    if source in LATER_SOURCES:
        raise DataError(
            f"data.source = {source!r} is not available yet in this version; "
            f"fix: export the rows to a file and use source jsonl, or use arithmetic"
        )
    if source not in SOURCES:
        raise DataError(f"data.source = {source!r} is not a source; {nearest(source, (*SOURCES, *LATER_SOURCES))}")


def _nothing_unread(source: str, given: Mapping[str, object]) -> None:
    for name, reader in READ_BY.items():
        if given[name] and reader != source:
            raise DataError(
                f"data.{name} is set, but source {source} does not read it; fix: remove it, or use source {reader}"
            )


def _file_of(split: str, path: str | Path | None, heldout_path: str | Path | None) -> tuple[str, Path]:
    key, chosen = ("data.path", path) if split == "train" else ("data.heldout_path", heldout_path)
    if chosen is None:
        raise DataError(
            f"data.split = {split!r} needs {key}, which is not set: source jsonl never splits a file by itself; "
            f"fix: set {key} to a file with one JSON object per line"
        )
    return key, Path(chosen)


def _as_chat(row: Row) -> Row:
    prompt = row["prompt"]
    return {**row, "prompt": [{"role": "user", "content": prompt}]} if isinstance(prompt, str) else row
