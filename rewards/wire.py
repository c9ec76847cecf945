"""Messages between the pool and its workers: a four-byte length, then JSON. Never pickle: a reply is data."""

import json
from typing import Any, BinaryIO

HEADER_BYTES = 4


def encode(message: dict[str, Any]) -> bytes:
    """One frame. Escaped to ASCII, so that lone surrogates in a completion survive."""
    body = json.dumps(message).encode("ascii")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def read_message(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message of a blocking stream; None at its end."""
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    length = int.from_bytes(header, "big")
    body = stream.read(length)
    return json.loads(body) if len(body) == length else None


class Decoder:
    """Cuts a stream of bytes, arriving in arbitrary pieces, into messages."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        self._pending += data
        messages = []
        while len(self._pending) >= HEADER_BYTES:
            end = HEADER_BYTES + int.from_bytes(self._pending[:HEADER_BYTES], "big")
            if len(self._pending) < end:
                break
            messages.append(json.loads(self._pending[HEADER_BYTES:end]))
            del self._pending[:end]
        return messages
