"""The judge's side of the conversation with a solution."""

import time
from collections.abc import Callable
from typing import Any, NoReturn

from rewards.sandbox.channel import Channel, ProtocolError
from rewards.sandbox.codec import (
    CALLBACK,
    CLASS,
    CONTAINER,
    COROUTINE,
    ERROR,
    OBJECT,
    SUBCLASS,
    decode,
    encode,
)
from rewards.sandbox.errors import Errors, nearest_builtin
from rewards.sandbox.handing import UnsupportedTestError, change, refer
from rewards.sandbox.own import Proxy, container_type, kept_type

HANDED = "an operator on one of the program's objects was given what cannot be handed over"
FROM_TESTS = ("call", "setattr")
"""Operations whose arguments a test chose for an object of the solution's; others also meet a misplaced object."""


class LostError(BaseException):
    """The solution is gone, silent for too long, or sends garbage. No `except Exception` of a test catches it."""


class Remote:
    """Asks the other side, with a deadline that the judge sets for each test."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.deadline = 0.0
        self.lost = False
        self.unsupported: str | None = None
        self.notes: set[str] = set()
        """Why a test may have failed that a right program would have passed; never the solution's own words."""
        self.runs = 0
        """Grows whenever the solution may have changed its objects."""
        self.errors = Errors(self)
        self._callbacks: list[Callable[..., Any]] = []
        self._raised: list[Exception] = []
        self._objects: dict[tuple[str, int], Any] = {}

    def start(self, limit_s: float) -> None:
        """Give the solution `limit_s` seconds from now."""
        self.deadline = time.monotonic() + limit_s

    def note(self, text: str) -> None:
        self.notes.add(text)

    def refuse(self, reason: str) -> NoReturn:
        """Nobody can run these tests."""
        self.unsupported = reason
        raise UnsupportedTestError(reason)

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
        """One of the solution's OPERATIONS. Raises what it raised there."""
        try:
            wires = [self.encode(a) for a in arguments]
            named = {name: self.encode(a) for name, a in keywords.items()}
        except UnsupportedTestError as error:
            if operation in FROM_TESTS:
                self.refuse(str(error))
            self.note(HANDED)
            raise TypeError(HANDED) from None
        self.runs += operation != "content"
        answer = self._exchange({"operation": operation, "arguments": wires, "keywords": named})
        self.runs += operation != "content"
        value = self._value(answer)
        handed = {**{str(place): a for place, a in enumerate(arguments)}, **keywords}
        for place, wire in answer.get("changed", {}).items():
            change(handed[place], self.decode(wire))
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
        self.runs += 1
        try:
            function = self._callbacks[message[CALLBACK]]
            arguments = [self.decode(a) for a in message["arguments"]]
            keywords = {str(name): self.decode(a) for name, a in message["keywords"].items()}
            return {"value": self.encode(function(*arguments, **keywords))}
        except UnsupportedTestError as error:
            self.refuse(str(error))
        except Exception as error:
            self._raised.append(error)
            return {"raised": [nearest_builtin(type(error)), str(error), len(self._raised) - 1]}

    def _value(self, answer: dict[str, Any]) -> Any:
        if "again" in answer:  # an exception of a test's function, on its way back to the test
            raise self._raised[answer["again"]]
        if "raised" not in answer:
            return self.decode(answer.get("value"))
        error = self.decode([ERROR, answer["raised"]])
        error.__dict__["from_completion"] = True  # the judge can tell it from an error of the tests
        raise error

    def encode(self, value: Any) -> Any:
        return encode(value, self._refer)

    def decode(self, wire: Any) -> Any:
        """Raises ProtocolError."""
        return decode(wire, self._meet)

    def proxy(self, number: int) -> Proxy:
        known: Proxy = self._known(OBJECT, number, Proxy)
        return known

    def _known(self, tag: str, number: int, kind: Callable[["Remote", int], Any]) -> Any:
        """Always the same object for the same number, so that `is` holds."""
        found = self._objects.get((tag, number))
        if found is None:  # not setdefault: making one may take long
            found = self._objects[tag, number] = kind(self, int(number))
        return found

    def _meet(self, tag: str, payload: Any) -> Any:
        if tag == OBJECT:
            return self.proxy(payload)
        if tag == CALLBACK:
            return self._callbacks[payload]
        if tag == CLASS:
            return self.errors.value(payload)
        if tag == ERROR:
            return self.errors.instance(payload)
        if tag == COROUTINE:
            return self._await(self.proxy(payload))
        if tag == CONTAINER:
            number, defined = payload
            return self._known(tag, number, container_type(frozenset(defined)))
        if tag == SUBCLASS:
            number, wire, defined = payload
            return self._known(tag, number, lambda *_: self._kept(number, self.decode(wire), frozenset(defined)))
        raise ProtocolError(f"unknown tag {tag!r}")

    def _kept(self, number: int, value: Any, defined: frozenset[str]) -> Any:
        base: type = type(value)
        kind = kept_type(base, defined)
        kept = kind.__new__(kind, value)
        object.__setattr__(kept, "_sandbox_remote", self)
        object.__setattr__(kept, "_sandbox_number", number)
        return kept

    async def _await(self, coroutine: Proxy) -> Any:
        return self.ask("await", coroutine)

    def _refer(self, value: Any) -> list[Any]:
        return refer(value, self._register)

    def _register(self, function: Callable[..., Any]) -> int:
        self._callbacks.append(function)
        return len(self._callbacks) - 1
