"""Reads what another process has appended to a JSONL file since the last look."""

import json
import os
from pathlib import Path
from typing import Any


class JsonlTail:
    """Whole lines, each once. A half one waits for its rest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin(None)

    def _begin(self, inode: int | None) -> None:
        self._inode, self._offset, self._rest = inode, 0, b""

    def look(self) -> tuple[list[dict[str, Any]], bool]:
        """New entries, and whether they replace all earlier ones: the file is another one now."""
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                anew = inode != self._inode  # a resumed trainer replaces the file by its first part
                if anew:
                    self._begin(inode)
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return [], False
        self._offset += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        return [json.loads(line) for line in whole], anew
