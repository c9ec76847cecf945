"""The solution's side of the conversation: what it keeps, and how it shows that to the judge."""

import builtins
import functools
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from types import CoroutineType
from typing import Any

from rewards.sandbox.codec import (
    CALLBACK,
    CLASS,
    CONTAINER,
    COROUTINE,
    ERROR,
    ITERATOR,
    NAMED,
    OBJECT,
    SUBCLASS,
    decode,
    encode,
)
from rewards.sandbox.operators import EQUAL, METHODS, READS, redefined

VALUES: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__index__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
CONTAINERS: dict[type, Callable[[Any], Any]] = {
    OrderedDict: lambda value: OrderedDict(OrderedDict.items(value)),
    Counter: lambda value: Counter(dict(dict.items(value))),
    defaultdict: lambda value: defaultdict(value.default_factory, dict.items(value)),
    dict: lambda value: dict(dict.items(value)),
    list: lambda value: list(list.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    deque: lambda value: deque(deque.__iter__(value), value.maxlen),
    bytearray: lambda value: bytearray.__getitem__(value, slice(None)),
}


@functools.cache
def plain_base(kind: type) -> tuple[type | None, list[str]]:
    """The plain type that it derives from, and the operators that it has of its own.

    None where there is none, or where it reads otherwise than that: then its content is not what it shows.
    """
    for base in (*VALUES, *CONTAINERS):
        if issubclass(kind, base):
            reads = tuple(name for name in READS if hasattr(base, name))
            return (None, []) if redefined(kind, base, reads) else (base, redefined(kind, base, (*METHODS, EQUAL)))
    return None, []


def content(value: Any) -> Any:
    """Of an object of a class that derives from one of CONTAINERS, as that."""
    kind: type = type(value)
    base, _ = plain_base(kind)
    if base is None:
        raise TypeError("it has no plain content")
    return CONTAINERS[base](value)


class Objects:
    """The objects that the judge knows by number."""

    def __init__(self, call_back: Callable[[int, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self._call_back = call_back
        self._kept: dict[int, Any] = {}
        self._callbacks: dict[int, int] = {}

    def encode(self, value: Any) -> Any:
        return encode(value, self._refer)

    def decode(self, wire: Any) -> Any:
        return decode(wire, self._meet)

    def error(self, error: BaseException) -> dict[str, Any]:
        return {
            "class": self._class(type(error)),
            "arguments": self.encode(error.args),
            "text": str(error),
            "number": self._keep(error),
            "attributes": self.encode(vars(error)),
        }

    def _class(self, kind: type) -> dict[str, Any]:
        bases = [] if kind is BaseException else [b for b in kind.__bases__ if issubclass(b, BaseException)]
        return {
            "name": kind.__name__,
            "module": kind.__module__,
            "number": self._keep(kind),
            "bases": [self._class(base) for base in bases],
        }

    def _keep(self, value: Any) -> int:
        self._kept[id(value)] = value
        return id(value)

    def _refer(self, value: Any) -> list[Any]:
        kind: Any = type(value)
        if issubclass(kind, BaseException):
            return [ERROR, self.error(value)]
        if issubclass(kind, type) and issubclass(value, BaseException):
            return [CLASS, self._class(value)]
        if id(value) in self._callbacks:
            return [CALLBACK, self._callbacks[id(value)]]
        number = self._keep(value)
        if kind is CoroutineType:
            return [COROUTINE, number]
        base, defined = plain_base(kind)
        if base in VALUES:
            return [SUBCLASS, [number, self.encode(VALUES[base](value)), defined]]
        return [CONTAINER, [number, defined]] if base is not None else [OBJECT, number]

    def _meet(self, tag: str, payload: Any) -> Any:
        if tag == OBJECT:
            return self._kept[payload]
        if tag == CALLBACK:
            return self._function(payload)
        if tag == ITERATOR:
            return self._iterate(self._function(payload))
        if tag == CLASS:
            return getattr(builtins, payload)
        if tag == ERROR:
            return getattr(builtins, payload[0])(*self.decode(payload[1]))
        if tag == NAMED:
            name, fields, values = self.decode(payload)
            return namedtuple(name, fields)(*values)
        raise KeyError(tag)

    def _function(self, number: int) -> Callable[..., Any]:
        def call_back(*arguments: Any, **keywords: Any) -> Any:
            return self._call_back(number, arguments, keywords)

        self._callbacks[self._keep(call_back)] = number
        return call_back

    @staticmethod
    def _iterate(following: Callable[[], Any]) -> Iterator[Any]:
        while True:
            try:
                item = following()
            except StopIteration:
                return
            yield item
