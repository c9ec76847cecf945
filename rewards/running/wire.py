"""Messages between the pool and its workers, each after four bytes that hold its length.

Commands are marshalled: it costs little more than copying, and keeps what JSON loses (NaN, lone surrogates, integers
beyond 64 bits). A worker takes them from the process that started it, with the same interpreter, and from nobody else.
Replies are JSON: user code runs where they come from, so they must be data that can do no harm.
"""

import marshal
from collections.abc import Iterator
from typing import Any, BinaryIO

from rewards import json_codec

HEADER_BYTES = 4


def encode_command(message: dict[str, Any]) -> bytes:
    return _frame(marshal.dumps(message))


def encode_reply(message: dict[str, Any]) -> bytes:
    return _frame(json_codec.encode(message))


def read_command(stream: BinaryIO) -> dict[str, Any] | None:
    """The next command of a blocking stream; None at its end."""
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    length = int.from_bytes(header, "big")
    body = stream.read(length)
    return marshal.loads(body) if len(body) == length else None  # noqa: S302  from our own parent only


class ReplyDecoder:
    """Cuts a stream of bytes, arriving in arbitrary pieces, into replies."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        self._pending += data
        while len(self._pending) >= HEADER_BYTES:
            end = HEADER_BYTES + int.from_bytes(self._pending[:HEADER_BYTES], "big")
            if len(self._pending) < end:
                break
            body = self._pending[HEADER_BYTES:end]
            del self._pending[:end]
            yield json_codec.decode(body)


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(HEADER_BYTES, "big") + body
