"""Questions of reasoning_gym (an extra), with the columns that its scorers read: question, answer, metadata (JSON)."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from orchestrator.data.columns import Row
from orchestrator.data.errors import ROWS_KEYS, DataError

DEADLINE_S = 300.0
"""For all rows of a recipe. The slowest data sets (sokoban) need a third of a second for each."""


def reasoning_gym_rows(
    task: str | None, params: Mapping[str, Any], *, split: str, rows: int | None, other_rows: int | None, seed: int
) -> list[Row]:
    """`rows` rows of a split, whose questions are none of the `other_rows` of the other one. Takes a second or more.

    `task` is the data set's name, `params` are its own parameters. Raises DataError.
    """
    sizes = {split: rows, ("heldout" if split == "train" else "train"): other_rows}
    if not task:
        raise DataError("data.task is not set; fix: name a data set of reasoning_gym, e.g. data.task=chain_sum")
    for name, size in sizes.items():
        if size is None:
            raise DataError(f"{ROWS_KEYS[name]} = null, but reasoning_gym never ends; fix: set {ROWS_KEYS[name]}")
    if importlib.util.find_spec("reasoning_gym") is None:
        raise DataError(
            "data.source = 'reasoning_gym' needs the package of that name, an extra; "
            "fix: pip install 'orchestrate[reasoning_gym]'"
        )
    request = {"task": task, "params": dict(params), "seed": seed, **sizes}
    made: list[Row] = json.loads(_splits(json.dumps(request, sort_keys=True)))[split]
    return made


@lru_cache(maxsize=4)
def _splits(request: str) -> str:
    """JSON of both splits: training and held-out rows, and the jobs of a sweep, ask for the same ones."""
    argv = (sys.executable, "-P", "-m", "orchestrator.data.gym_entries")
    env = os.environ | {"PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            argv, input=request, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(
            f"reasoning_gym does not make the rows of {request} within {DEADLINE_S:g} s; fix: fewer rows, or save "
            f"them to a file once and use source jsonl"
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise DataError(f"reasoning_gym fails at {request}: {last}; fix: change data.task or data.params")
    answer = json.loads(done.stdout)
    if "problem" in answer:
        raise DataError(answer["problem"])
    return json.dumps(answer["rows"])
