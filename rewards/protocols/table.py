"""Which dialects there are, and which one a body speaks."""

from collections.abc import Mapping
from typing import Any

from rewards.protocols import align_anything, native, openrlhf, vime
from rewards.protocols.common import Dialect

DIALECTS: tuple[Dialect, ...] = (native.DIALECT, align_anything.DIALECT, openrlhf.DIALECT, vime.DIALECT)
PATHS: tuple[str, ...] = tuple(dict.fromkeys(dialect.path for dialect in DIALECTS))


def dialects_of(path: str) -> tuple[Dialect, ...]:
    return tuple(dialect for dialect in DIALECTS if dialect.path == path)


def dialect_of(path: str, raw: Mapping[str, Any]) -> Dialect:
    """OpenRLHF's bodies have `query`, Align-Anything's `responses`; one with neither is told what the latter wants."""
    if path == openrlhf.PATH and "query" in raw and "responses" not in raw:
        return openrlhf.DIALECT
    return dialects_of(path)[0]
