"""The directory that one run writes to."""

import json
import os
import uuid
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

TAIL_BYTES = 65_536
MAX_LINE_CHARS = 1_000


def create_run_dir(root: Path, name: str, now: datetime) -> Path:
    """Make and return root/name/2026-01-31_23-59-59, with -2, -3... behind it when that one exists.

    mkdir decides, so two runs of the same second get two directories. `root/name/latest` points to the newest.
    Raises ValueError when the name is not a single path component.
    """
    if name in ("", ".", "..") or Path(name).name != name:
        raise ValueError(f"a run name must be one path component, not {name!r}")
    parent = root / name
    parent.mkdir(parents=True, exist_ok=True)
    stamp = now.strftime("%Y-%m-%d_%H-%M-%S")
    number = 1
    while True:
        run_dir = parent / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            run_dir.mkdir()
        except FileExistsError:
            number += 1
            continue
        (run_dir / "logs").mkdir()
        _point_latest_at(run_dir)
        return run_dir


def write_json(path: Path, value: Any) -> None:
    """Write the whole file or leave the old one: a reader never sees half of it."""
    scratch = _scratch_name(path)
    try:
        scratch.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def append_jsonl(path: Path, value: Any) -> None:
    """Add one line. One write call, so that lines of two writers do not mix."""
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(value).encode() + b"\n")


def log_path(run_dir: Path, service: str) -> Path:
    """Where the service's stdout and stderr go."""
    return run_dir / "logs" / f"{service}.log"


def tail(path: Path, lines: int = 20) -> tuple[str, ...]:
    """The last lines of a log of any size; () when there is none.

    Of a progress bar, which redraws one line by carriage returns, the last state is given. Long lines are cut.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            start = max(0, file.tell() - TAIL_BYTES)
            file.seek(start)
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    whole = text.split("\n")
    if start and len(whole) > 1:
        del whole[0]  # most likely cut in the middle
    last = deque((shown for line in whole if (shown := _visible(line))), maxlen=lines)
    return tuple(last)


def _visible(line: str) -> str:
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1].rstrip()[:MAX_LINE_CHARS] if states else ""


def _scratch_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


def _point_latest_at(run_dir: Path) -> None:
    scratch = _scratch_name(run_dir.parent / "latest")
    scratch.symlink_to(run_dir.name)
    scratch.replace(run_dir.parent / "latest")
