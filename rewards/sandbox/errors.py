"""Exceptions of the solution's as real exceptions in the judge, so that the tests can catch them by their class."""

import builtins
import sys
from typing import TYPE_CHECKING, Any

from rewards.sandbox.channel import ProtocolError
from rewards.sandbox.own import Proxy
from rewards.sandbox.reach import number_of, remote_of

if TYPE_CHECKING:
    from rewards.sandbox.remote import Remote


class ErrorType(type):
    """Of a class that stands for one of the solution's: what it makes, and what it has, is over there."""

    _sandbox_proxy: Proxy

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "ErrorType":
        if "_sandbox_proxy" not in namespace:
            for base in bases:
                if isinstance(base, ErrorType):
                    text = "a test derives a class from one of the program's, which is in another process"
                    remote_of(base._sandbox_proxy).refuse(text)
        return super().__new__(cls, name, bases, namespace)

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        return cls._sandbox_proxy(*arguments, **keywords)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._sandbox_proxy, name)


class OwnError:
    """An instance of such a class."""

    _sandbox_object: Proxy
    _sandbox_text: str

    def __str__(self) -> str:
        return self._sandbox_text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_sandbox_"):
            raise AttributeError(name)
        return getattr(self._sandbox_object, name)


class Errors:
    """The classes that are known so far."""

    def __init__(self, remote: "Remote") -> None:
        self.remote = remote
        self._classes: dict[int, Any] = {}

    def value(self, payload: dict[str, Any]) -> Any:
        """A class, as tests name it. One that the judge's own errors are instances of would catch a failing assert."""
        kind = self.kind(payload)
        return self.remote.proxy(payload["number"]) if issubclass(AssertionError, kind) else kind

    def kind(self, payload: dict[str, Any]) -> Any:
        """Raises ProtocolError and TypeError."""
        number, name = int(payload["number"]), str(payload["name"])
        if number not in self._classes:
            self._classes[number] = _known(str(payload["module"]), name) or self._stand_in(number, name, payload)
        return self._classes[number]

    def _stand_in(self, number: int, name: str, payload: dict[str, Any]) -> Any:
        bases = tuple(self.kind(base) for base in payload["bases"])
        if not bases:
            raise ProtocolError(f"an exception class without a base: {name!r}")
        if not any(isinstance(base, ErrorType) for base in bases):
            bases = (OwnError, *bases)
        return ErrorType(name, bases, {"_sandbox_proxy": self.remote.proxy(number)})

    def instance(self, payload: dict[str, Any]) -> BaseException:
        """Raises ProtocolError and TypeError."""
        kind = self.kind(payload["class"])
        arguments = self.remote.decode(payload["arguments"])
        error: BaseException = kind.__new__(kind, *arguments)
        if isinstance(error, OwnError):
            error._sandbox_object = self.remote.proxy(payload["number"])
            error._sandbox_text = str(payload["text"])
        else:
            error = _made(kind, error, arguments)
            vars(error).update(self.remote.decode(payload["attributes"]))
        error.args = tuple(arguments)
        return error


def _made(kind: Any, bare: BaseException, arguments: Any) -> BaseException:
    try:
        made: BaseException = kind(*arguments)
    except TypeError:  # its class keeps other things in args than what it is made of
        return bare
    return made


def _known(module: str, name: str) -> Any:
    """A class that is the same here; in what the tests have not imported they cannot name one."""
    place = builtins if module == "builtins" else sys.modules.get(module)
    found = vars(place).get(name) if place is not None and module.partition(".")[0] != "rewards" else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def number_of_error(value: Any) -> int | None:
    """Of a class or an exception that is the solution's."""
    if isinstance(value, ErrorType):
        return number_of(value._sandbox_proxy)
    return number_of(value._sandbox_object) if isinstance(value, OwnError) else None


def nearest_builtin(kind: type[BaseException]) -> str:
    return next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")
