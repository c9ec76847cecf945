"""Lengths of the training prompts in tokens: counted by a run or by `check --deep`, remembered for every later check.

Counting takes the tokenizer, and so transformers; reading the count takes one small file below the user's cache folder.
"""

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

from orchestrator.data import DataFacts
from orchestrator.facts.types import ModelFacts
from orchestrator.schema import RunConfig


def cache_dir() -> Path:
    """Where the counts are: one JSON file each, {length in tokens: rows}."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "orchestrate" / "prompt_tokens"


def key(run: RunConfig, data: DataFacts, model: ModelFacts) -> str | None:
    """Names what was counted: the rows, and all that turns them into tokens. None for a model without a tokenizer."""
    if model.prompt_files_sha256 is None:
        return None
    counted = {
        "rows": data.fingerprint,
        "tokenizer": model.prompt_files_sha256,
        "chat": run.data.chat,
        "added": run.model.add_tokens,
        "template": run.trainer.args.get("chat_template_kwargs"),
    }
    return sha256(json.dumps(counted, sort_keys=True, default=str).encode()).hexdigest()


def read(run: RunConfig, data: DataFacts | str, model: ModelFacts | str | None) -> dict[int, int] | str:
    """Length in tokens -> training rows that have it; or why that is not known."""
    if isinstance(data, str) or not isinstance(model, ModelFacts):
        return "the rows or the model's files cannot be read"
    name = key(run, data, model)
    if name is None:
        return f"{model.path} holds no tokenizer"
    path = cache_dir() / f"{name}.json"
    try:
        found = {int(length): rows for length, rows in json.loads(path.read_text(encoding="utf-8")).items()}
        if not all(type(rows) is int for rows in found.values()) or sum(found.values()) != data.rows:
            raise ValueError(f"it does not count {data.rows} rows")
    except FileNotFoundError:
        return "not counted"
    except (OSError, ValueError, AttributeError) as error:
        return f"not counted: {path} cannot be used: {error}"
    return found


def write(run: RunConfig, data: DataFacts, model: ModelFacts, lengths: Mapping[int, int]) -> None:
    """Remember a count, whole or not at all. Raises OSError where the cache folder cannot be written."""
    name = key(run, data, model)
    if name is None:
        return
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({str(length): rows for length, rows in sorted(lengths.items())})
    with NamedTemporaryFile("w", dir=folder, suffix=".partial", delete=False, encoding="utf-8") as scratch:
        try:
            scratch.write(text)
            scratch.flush()
            Path(scratch.name).replace(folder / f"{name}.json")
        except OSError:
            Path(scratch.name).unlink(missing_ok=True)
            raise
