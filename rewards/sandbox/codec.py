"""Plain data as JSON, and the socket between a solution and its judge.

Atoms are themselves; everything else is [tag, payload]. What is not plain is up to the sender: the solution keeps its
object and sends a number (OBJECT), the judge refuses, but for functions (CALLBACK). A subclass travels as its base
(a Counter as a dict, a named tuple as a tuple), so no `__eq__` of the solution's ever meets an expected value.
"""

import json
import socket
import time
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

OBJECT, CALLBACK = "object", "callback"
LARGEST_MESSAGE = 16 << 20
LARGEST_JSON_INT = 1 << 53
MUTABLE = (list, dict, set, bytearray)
TYPES = {t.__name__: t for t in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, object)}

Opaque = Callable[[Any], list[Any]]


class ProtocolError(Exception):
    """What came over the socket is no message, or too large a one."""


def encode(value: Any, opaque: Opaque) -> Any:
    """JSON-able form; `opaque` decides about what is not plain, and may raise."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if -LARGEST_JSON_INT < value < LARGEST_JSON_INT else ["int", hex(value)]
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return ["dict", [[encode(k, opaque), encode(v, opaque)] for k, v in value.items()]]
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, [encode(item, opaque) for item in value]]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes" if isinstance(value, bytes) else "bytearray", bytes(value).hex()]
    if isinstance(value, (complex, Decimal, Fraction)):
        return [type(value).__name__, str(value)]
    if isinstance(value, range):
        return ["range", [hex(value.start), hex(value.stop), hex(value.step)]]
    for name, named in TYPES.items():
        if value is named:
            return ["type", name]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), opaque)
    return opaque(value)


DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda payload: int(payload, 16),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": complex,
    "Decimal": Decimal,
    "Fraction": Fraction,
    "range": lambda payload: range(*(int(part, 16) for part in payload)),
    "type": TYPES.__getitem__,
}


def decode(wire: Any, opaque: Callable[[str, Any], Any]) -> Any:
    """The value of `encode`. Raises ProtocolError for anything else, and for nesting too deep."""
    try:
        return _decode(wire, opaque)
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise ProtocolError(f"no plain data: {error}") from None


def _decode(wire: Any, opaque: Callable[[str, Any], Any]) -> Any:
    if not isinstance(wire, list):
        return wire
    tag, payload = wire
    if tag == "dict":
        return {_decode(k, opaque): _decode(v, opaque) for k, v in payload}
    for kind in (list, tuple, set, frozenset):
        if tag == kind.__name__:
            return kind(_decode(item, opaque) for item in payload)
    return DECODERS[tag](payload) if tag in DECODERS else opaque(tag, payload)


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
