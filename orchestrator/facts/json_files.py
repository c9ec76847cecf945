"""JSON files of a checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_object(path: Path) -> Mapping[str, Any]:
    """The object in a file. Raises OSError, and ValueError for what is no JSON object."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no JSON object")
    return found


def object_if_there(path: Path) -> Mapping[str, Any]:
    """The same, and {} where there is no file."""
    return read_object(path) if path.is_file() else {}
