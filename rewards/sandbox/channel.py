"""The socket between a solution and its judge."""

import json
import socket
import time
from typing import Any

LARGEST_MESSAGE = 16 << 20


class ProtocolError(Exception):
    """What came over the socket is no message, or too large a one."""


class Channel:
    """Messages with a length in front, over a stream socket."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)

    def send(self, message: dict[str, Any], deadline: float | None = None) -> None:
        """Raises OSError (TimeoutError after `deadline`, of the monotonic clock) and ProtocolError."""
        data = json.dumps(message).encode()
        if len(data) > LARGEST_MESSAGE:
            raise ProtocolError(f"a message of {len(data)} bytes")
        self.socket.settimeout(_left(deadline))
        self.socket.sendall(len(data).to_bytes(4, "big") + data)

    def receive(self, deadline: float | None = None) -> dict[str, Any] | None:
        """The next message; None at the end. Raises as `send` does."""
        head = self._exactly(4, deadline)
        if head is None:
            return None
        size = int.from_bytes(head, "big")
        if size > LARGEST_MESSAGE:
            raise ProtocolError(f"a message of {size} bytes")
        data = self._exactly(size, deadline)
        try:
            message = json.loads(data) if data is not None else None
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"no JSON: {error}") from None
        if message is not None and not isinstance(message, dict):
            raise ProtocolError("a message that is no object")
        return message

    def _exactly(self, size: int, deadline: float | None) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            self.socket.settimeout(_left(deadline))
            part = self.socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
