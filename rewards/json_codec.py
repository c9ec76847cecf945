"""JSON both ways, fast: msgspec, and json where that is stricter than the standard or we need its words.

msgspec keeps integers of any size (a gold answer may have forty digits), which orjson would round to a float.
"""

import json
from typing import Any, NoReturn

import msgspec


def decode(body: bytes | bytearray | memoryview) -> Any:
    """Raises ValueError, in words. NaN and Infinity are not JSON; a lone surrogate (half an emoji) is."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(bytes(body), parse_constant=_not_json)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def encode(value: Any) -> bytes:
    """Escapes lone surrogates. The caller has no NaN in it: msgspec would write null. Raises TypeError."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False).encode("ascii")


def _not_json(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")
