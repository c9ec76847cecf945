"""Objects of the solution's as the judge sees them.

A Proxy equals no plain value, whatever its class says. One that derives from a plain type (a named tuple, an IntEnum,
a class of the solution's that is a list) is also that value: Kept and Container compare by content. Two objects of the
solution's are equal if the solution says so; so is what an object holds (`in`) and whether it is true.
"""

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rewards.sandbox.operators import BINARY, EQUAL, METHODS, ORDER, reflected
from rewards.sandbox.reach import Own, ask, is_mixed, is_own, must_not_be_mixed, remote_of

if TYPE_CHECKING:
    from rewards.sandbox.remote import Remote

READABLE = ("__name__", "__qualname__", "__module__", "__doc__", "__dict__", "__bases__", "__mro__", "__annotations__")
HIDDEN = "the tests read a special attribute of one of the program's objects that cannot be read from outside"
COMPARED = "the tests compared an object of a class of the program's with plain data, which it never equals"


class Proxy(Own):
    """An object that is no plain data."""

    __slots__ = ("_sandbox_mixed", "_sandbox_number", "_sandbox_remote")
    _sandbox_bare: ClassVar[bool] = True

    def __init__(self, remote: "Remote", number: int) -> None:
        object.__setattr__(self, "_sandbox_remote", remote)
        object.__setattr__(self, "_sandbox_number", number)
        object.__setattr__(self, "_sandbox_mixed", False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in READABLE:  # NumPy would follow the address in __array_interface__
            remote_of(self).note(HIDDEN)
            raise AttributeError(name)
        return ask(self, "getattr", name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return ask(self, "getattr", "__class__")

    def __mro_entries__(self, bases: Any) -> Any:
        remote_of(self).refuse("a test derives a class from one of the program's, which is in another process")

    def __getitem__(self, key: Any) -> Any:
        return ask(self, "getitem", key)

    def __len__(self) -> int:
        return int(ask(self, "len"))

    def __iter__(self) -> Iterator[Any]:
        iterator = ask(self, "iter")
        if type(iterator) is not Proxy:
            raise TypeError("the solution's __iter__ gave no iterator")
        return iterator

    def __next__(self) -> Any:
        return ask(self, "next")

    def __reversed__(self) -> Any:
        return ask(self, "reversed")

    def __contains__(self, item: Any) -> bool:
        return ask(self, "contains", item) is True

    def __bool__(self) -> bool:
        must_not_be_mixed(self)
        return ask(self, "bool") is True

    def __eq__(self, other: object) -> Any:
        if not is_own(other):
            remote_of(self).note(COMPARED)
            return NotImplemented
        return self is other or ask(self, "equal", other) is True

    def __hash__(self) -> int:
        return hash(ask(self, "hash"))

    def __instancecheck__(self, instance: Any) -> bool:
        return is_own(instance) and ask(self, "isinstance", instance) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        return ask(self, "issubclass", kind) is True


for _name, _method in METHODS.items():
    setattr(Proxy, _name, _method)


class Container(Proxy):
    """One that is also a list, a dict, ...: what its class does not define itself is done on a copy of its content."""

    __slots__ = ("_sandbox_content",)
    _sandbox_bare: ClassVar[bool] = False

    def __init__(self, remote: "Remote", number: int) -> None:
        Proxy.__init__(self, remote, number)
        object.__setattr__(self, "_sandbox_content", (-1, None))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(content(self))

    def __getitem__(self, key: Any) -> Any:
        try:
            return content(self)[key]
        except LookupError:  # a dict may have a __missing__
            return ask(self, "getitem", key)

    def __len__(self) -> int:
        return len(content(self))

    def __iter__(self) -> Iterator[Any]:
        return iter(content(self))

    def __contains__(self, item: Any) -> bool:
        return item in content(self)

    def __bool__(self) -> bool:
        return bool(content(self))

    def __eq__(self, other: object) -> bool:
        return bool(content(self) == content(other))

    __hash__ = None  # type: ignore[assignment]


class Kept(Own):
    """One that is also a number, a string or a tuple, which never changes."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith(("__", "_sandbox_")) and name != "__dict__":
            return object.__getattribute__(self, name)
        return ask(self, "getattr", name)


def content(value: Any) -> Any:
    """What a Container holds; anything else as it is.

    It is read again only after the solution has run, so that it cannot answer each look in another way.
    """
    if not issubclass(type(value), Container):
        return value
    remote = remote_of(value)
    read_at, held = object.__getattribute__(value, "_sandbox_content")
    if read_at != remote.runs:
        held = remote.ask("content", value)
        object.__setattr__(value, "_sandbox_content", (remote.runs, held))
    return held


def _on_content(name: str) -> Callable[[Any, Any], Any]:
    def operate(self: Any, other: Any) -> Any:
        method = getattr(content(self), name, None)
        return NotImplemented if method is None else method(content(other))

    return operate


for _name in (*BINARY, *map(reflected, BINARY), *ORDER):
    setattr(Container, _name, _on_content(_name))


@functools.cache
def container_type(defined: frozenset[str]) -> type[Container]:
    """Of a class that defines these methods itself."""
    return type("Container", (Container,), {"__slots__": (), **_methods(Container, defined)})


@functools.cache
def kept_type(base: type, defined: frozenset[str]) -> type[Any]:
    """The same for a class that derives from `base`."""
    return type(base.__name__, (Kept, base), {"__hash__": base.__hash__, **_methods(base, defined)})


def _methods(base: type, defined: frozenset[str]) -> dict[str, Callable[..., Any]]:
    methods = {name: _or_base(METHODS[name], getattr(base, name, None)) for name in METHODS if name in defined}
    return {**methods, EQUAL: _equal(base)} if EQUAL in defined else methods


def _or_base(method: Callable[..., Any], base: Callable[..., Any] | None) -> Callable[..., Any]:
    """With plain data: an object that is no plain data, else what the base type makes of it."""

    def operate(self: Any, *others: Any) -> Any:
        if base is None or not others or is_own(others[0]):
            return method(self, *others)
        try:
            result = method(self, *others)
        except TypeError:
            return base(self, *others)
        return base(self, *others) if result is NotImplemented else result

    return operate


def _equal(base: type) -> Callable[[Any, Any], Any]:
    def equal(self: Any, other: Any) -> Any:
        if not is_own(other) or is_mixed(other):
            return getattr(base, EQUAL)(self, other)
        return self is other or ask(self, "equal", other) is True

    return equal
