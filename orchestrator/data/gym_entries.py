"""Entries of reasoning_gym, made in a process of its own: python -m orchestrator.data.gym_entries < request.json

Some of its data sets print, run programs, walk over sets or draw from Python's global generator. Here none of that
reaches us: the answer has stdout to itself, and hash seed (by the parent) and global seed are fixed.
"""

import contextlib
import dataclasses
import importlib
import json
import random
import sys
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

from orchestrator.data.columns import Row
from orchestrator.data.errors import ROWS_KEYS, DataError, nearest

CHUNK = 256
"""Entries that one data set makes. Entry i is drawn with its seed plus i, so another chunk takes a seed far away."""
PATIENCE = 1000
"""Entries in a row whose question was there before: then a data set is taken for exhausted."""


def splits(task: str, params: Mapping[str, Any], *, seed: int, train: int, heldout: int) -> dict[str, list[Row]]:
    """Rows of both splits; no question is there twice. The held-out ones are the same for every `seed`.

    Raises DataError for a task or parameters that reasoning_gym does not take, and where its questions run out.
    """
    asked: set[str] = set()
    return {
        "heldout": _rows(task, params, asked, split="heldout", seed=0, wanted=heldout),
        "train": _rows(task, params, asked, split="train", seed=seed, wanted=train),
    }


def _rows(task: str, params: Mapping[str, Any], asked: set[str], *, split: str, seed: int, wanted: int) -> list[Row]:
    rows: list[Row] = []
    chunk = unused = 0
    while len(rows) < wanted:
        entries, problem = _data_set(task, params, seed=_seed(split, seed, chunk)), ""
        for index in range(CHUNK):
            try:
                entry = entries[index]
            except Exception as error:  # theirs: maze, for one, finds no maze for one seed in a few hundred
                entry, problem = None, f"; the last failed with {type(error).__name__}: {error}"
            if entry is None or entry["question"] in asked:
                unused += 1
            else:
                unused = 0
                asked.add(entry["question"])
                rows.append(_row(entry))
            if len(rows) == wanted:
                break
            if unused == PATIENCE:
                raise _exhausted(task, split, wanted=wanted, found=len(rows), problem=problem)
        chunk += 1
    return rows


def _row(entry: Mapping[str, Any]) -> Row:
    # As text: as a mapping, Arrow would give every row the keys of all, with nulls for what it has not.
    metadata = json.dumps(entry["metadata"], default=str)
    question = entry["question"]
    return {"prompt": question, "question": question, "answer": entry["answer"], "metadata": metadata}


def _seed(split: str, seed: int, chunk: int) -> int:
    return int.from_bytes(sha256(f"reasoning_gym:{split}:{seed}:{chunk}".encode()).digest()[:4], "big") >> 1


def _data_set(task: str, params: Mapping[str, Any], *, seed: int) -> Any:
    package: Any = importlib.import_module("reasoning_gym")
    known: Mapping[str, Any] = importlib.import_module("reasoning_gym.factory").DATASETS
    if task not in known:
        raise DataError(f"data.task = {task!r} is no data set of reasoning_gym; {nearest(task, known)}")
    _known_params(task, params, {field.name for field in dataclasses.fields(known[task][1])})
    random.seed(seed)
    try:
        if task == "composite" and isinstance(params.get("datasets"), list):
            spec = importlib.import_module("reasoning_gym.composite").DatasetSpec
            params = {**params, "datasets": [spec(**part) for part in params["datasets"]]}
        return package.create_dataset(task, size=CHUNK, seed=seed, **params)
    except Exception as error:  # whatever their constructor raises, asserts among it, is about what it was told
        raise DataError(
            f"data.params = {dict(params)} do not suit data.task = {task!r}: {type(error).__name__}: {error}; "
            f"fix: change data.params"
        ) from error


def _known_params(task: str, params: Mapping[str, Any], fields: Collection[str]) -> None:
    for name, ours in (("size", "data.rows and evaluation.rows"), ("seed", "data.seed")):
        if name in params:
            raise DataError(f"data.params.{name} is set beside {ours}; fix: remove data.params.{name}")
    for name in params:
        if name not in fields:
            close = nearest(name, set(fields) - {"size", "seed"})
            raise DataError(f"data.params.{name} is no parameter of data.task = {task!r}; {close}")


def _exhausted(task: str, split: str, *, wanted: int, found: int, problem: str) -> DataError:
    key = ROWS_KEYS[split]
    beside = "" if split == "heldout" else " that are not held out"
    fix = f"set {key} to at most {found}, or widen data.params" if found else "change data.params"
    return DataError(
        f"{key} = {wanted}, but data.task = {task!r} with these data.params has about {found} questions{beside}"
        f"{problem}; fix: {fix}"
    )


def main() -> None:
    request = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer: Any = {"rows": splits(**request)}
        except DataError as error:
            answer = {"problem": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
