"""The judge's view of a solution: its plain values as they are, everything else by proxy.

A proxy has no arithmetic and no order, and equals no plain value, whatever its class says: only questions whose answer
is plain data count. Two objects of the solution's are equal if the solution says so.
"""

import builtins
import time
from collections.abc import Callable, Iterator
from typing import Any

from rewards.sandbox.codec import CALLBACK, OBJECT, Channel, ProtocolError, decode, encode

READABLE = ("__name__", "__doc__")


class UnsupportedTestError(Exception):
    """A test hands over what cannot travel: the test's fault, not the solution's."""


class CompletionError(Exception):
    """The solution raised an exception that is no built-in one."""


class LostError(BaseException):
    """The solution is gone, silent for too long, or sends garbage. No `except Exception` of a test catches it."""


class Remote:
    """Asks the other side, with a deadline that the judge sets for each test."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.deadline = 0.0
        self.lost = False
        self._callbacks: list[Callable[..., Any]] = []

    def start(self, limit_s: float) -> None:
        """Give the solution `limit_s` seconds from now."""
        self.deadline = time.monotonic() + limit_s

    def loaded(self) -> bool:
        """Whether the solution's own code ran through; to be asked first."""
        try:
            message = self.channel.receive(self.deadline)
        except (OSError, ProtocolError, MemoryError):
            message = None
        self.lost = message is None or "raised" in message
        return not self.lost

    def get(self, name: str) -> Any:
        """What the solution calls `name`. Raises KeyError."""
        return self._value(self._exchange({"operation": "get", "name": name}))

    def ask(self, operation: str, *arguments: Any, **keywords: Any) -> Any:
        """One of solution.OPERATIONS. Raises what it raised there."""
        answer = self._exchange(
            {
                "operation": operation,
                "arguments": [self._encode(a) for a in arguments],
                "keywords": {name: self._encode(a) for name, a in keywords.items()},
            }
        )
        value = self._value(answer)
        for position, wire in answer.get("changed", {}).items():
            _change(arguments[int(position)], self._decode(wire))
        return value

    def _exchange(self, question: dict[str, Any]) -> dict[str, Any]:
        if self.lost:
            raise LostError
        try:
            self.channel.send(question, self.deadline)
            while True:
                message = self.channel.receive(self.deadline)
                if message is None:
                    raise ProtocolError("the end")
                if CALLBACK not in message:
                    return message
                self.channel.send(self._call_back(message), self.deadline)
        except (OSError, ProtocolError, MemoryError) as error:
            self.lost = True
            raise LostError from error

    def _call_back(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self._callbacks[message[CALLBACK]]
            value = function(*(self._decode(a) for a in message["arguments"]))
            return {"value": self._encode(value)}
        except Exception as error:
            return {"raised": [type(error).__name__, str(error)]}

    def _value(self, answer: dict[str, Any]) -> Any:
        if "raised" not in answer:
            return self._decode(answer.get("value"))
        kind, text = map(str, answer["raised"])
        error = getattr(builtins, kind, None)
        if isinstance(error, type) and issubclass(error, Exception) and not issubclass(error, UnicodeError):
            raise from_completion(error(text))
        raise from_completion(CompletionError(f"{kind}: {text}"))

    def _encode(self, value: Any) -> Any:
        return encode(value, self._refer)

    def _decode(self, wire: Any) -> Any:
        return decode(wire, self._proxy)

    def _proxy(self, tag: str, number: Any) -> "Proxy":
        if tag != OBJECT or not isinstance(number, int):
            raise ProtocolError(f"unknown tag {tag!r}")
        return Proxy(self, number)

    def _refer(self, value: Any) -> list[Any]:
        if type(value) is Proxy:
            return [OBJECT, object.__getattribute__(value, "_number")]
        if callable(value) and not isinstance(value, type):
            self._callbacks.append(value)
            return [CALLBACK, len(self._callbacks) - 1]
        raise UnsupportedTestError(
            f"a test hands the solution an object of class {type(value).__name__}; only plain data (numbers, strings, "
            "lists, tuples, sets, dicts, bytes) and functions can be handed over"
        )


def from_completion(error: Exception) -> Exception:
    """Marked, so that the judge can tell it from an error of the tests."""
    error.__dict__["from_completion"] = True
    return error


def _change(argument: Any, new: Any) -> None:
    """Do in place to our argument what the solution did to its copy."""
    if type(new) is not type(argument):
        raise ProtocolError("an argument changed its type")
    if isinstance(argument, (list, bytearray)):
        argument[:] = new
    else:
        argument.clear()
        argument.update(new)


class Proxy:
    """An object of the solution's."""

    def __init__(self, remote: Remote, number: int) -> None:
        object.__setattr__(self, "_remote", remote)
        object.__setattr__(self, "_number", number)

    def _ask(self, operation: str, *arguments: Any, **keywords: Any) -> Any:
        remote: Remote = object.__getattribute__(self, "_remote")
        return remote.ask(operation, self, *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in READABLE:  # NumPy would follow the address in __array_interface__
            raise AttributeError(name)
        return self._ask("getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("setattr", name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._ask("call", *arguments, **keywords)

    def __getitem__(self, key: Any) -> Any:
        return self._ask("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._ask("setitem", key, value)

    def __len__(self) -> int:
        return int(self._ask("len"))

    def __iter__(self) -> Iterator[Any]:
        iterator = self._ask("iter")
        if type(iterator) is not Proxy:
            raise TypeError("the solution's __iter__ gave no iterator")
        return iterator

    def __next__(self) -> Any:
        return self._ask("next")

    def __str__(self) -> str:
        return str(self._ask("str"))

    def __repr__(self) -> str:
        return str(self._ask("repr"))

    def __eq__(self, other: object) -> bool:
        if type(other) is not Proxy:
            return False
        same = object.__getattribute__(self, "_number") == object.__getattribute__(other, "_number")
        return same or self._ask("equal", other) is True

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_number"))

    def __instancecheck__(self, instance: Any) -> bool:
        return (
            type(instance) is Proxy
            and object.__getattribute__(instance, "_remote").ask("isinstance", instance, self) is True
        )
