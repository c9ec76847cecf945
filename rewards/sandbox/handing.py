"""What the judge hands to a solution."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from rewards.sandbox.channel import ProtocolError
from rewards.sandbox.codec import ATOMS, CALLBACK, CLASS, ERROR, ITERATOR, NAMED, OBJECT, encode
from rewards.sandbox.errors import nearest_builtin, number_of_error
from rewards.sandbox.reach import Own, ask, is_own, number_of

ITERATORS = ("builtins", "itertools")  # a file, say, can do more than to be iterated


class UnsupportedTestError(BaseException):
    """A test does what cannot be done from outside: the test's fault, not the solution's. See Remote.unsupported."""


def refer(value: Any, register: Callable[[Callable[..., Any]], int]) -> list[Any]:
    """Wire of what is no plain data; `register` gives a function its number. Raises UnsupportedTestError."""

    def again(part: Any) -> list[Any]:
        return refer(part, register)

    if is_own(value):
        return [OBJECT, number_of(value)]
    if (number := number_of_error(value)) is not None:
        return [OBJECT, number]
    kind = type(value)
    if issubclass(kind, type) and issubclass(value, Own):
        raise TypeError("type() of one of the program's objects")  # the program's doing, not the test's
    if issubclass(kind, type) and issubclass(value, BaseException) and value.__module__ == "builtins":
        return [CLASS, value.__name__]
    if isinstance(value, BaseException):
        plain = [a for a in value.args if type(a) in ATOMS]
        return [ERROR, [nearest_builtin(kind), encode(plain, again)]]
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return [NAMED, encode((kind.__name__, kind._fields, tuple(value)), again)]
    if isinstance(value, Iterator) and kind.__module__ in ITERATORS:
        return [ITERATOR, register(value.__next__)]
    if callable(value) and not isinstance(value, type):
        return [CALLBACK, register(value)]
    raise UnsupportedTestError(
        f"a test hands the solution an object of class {kind.__name__}; only plain data (numbers, strings, dates, "
        "the containers of Python and of collections, arrays), exceptions and functions can be handed over"
    )


def type_of(value: Any) -> Any:
    """type(), also for what is the solution's."""
    return ask(value, "getattr", "__class__") if is_own(value) else type(value)


def change(argument: Any, new: Any) -> None:
    """Do in place to our argument what the solution did to its copy."""
    if type(new) is not type(argument):
        raise ProtocolError("an argument changed its type")
    if isinstance(argument, (list, bytearray)):
        argument[:] = new
    elif isinstance(argument, deque):
        argument.clear()
        argument.extend(new)
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(new)
    else:
        argument[...] = new
