"""How the judge reaches an object of the solution's: every question is answered over there."""

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from rewards.sandbox.remote import Remote

MIXED = "the tests did arithmetic on, or asked for the order of, an object of the program's and plain data"
SUPPRESSED = "an exception left a `with` block on one of the program's objects; its __exit__ cannot suppress it"


class Own:
    """What belongs to the solution. Its own attributes begin with _sandbox_, all others are over there."""

    __slots__ = ()
    _sandbox_bare: ClassVar[bool] = False
    """Whether it is no plain data at all."""

    def __setattr__(self, name: str, value: Any) -> None:
        ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "delattr", name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return ask(self, "call", *arguments, **keywords)

    def __setitem__(self, key: Any, value: Any) -> None:
        ask(self, "setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        ask(self, "delitem", key)

    def __str__(self) -> str:
        return str.__str__(ask(self, "str"))

    def __repr__(self) -> str:
        return str.__str__(ask(self, "repr"))

    def __format__(self, form: str) -> str:
        return str.__str__(ask(self, "format", form))

    def __enter__(self) -> Any:
        return ask(self, "enter")

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        if ask(self, "exit", *(() if error is None else (error,))) is True:
            remote_of(self).note(SUPPRESSED)


def is_own(value: object) -> bool:
    """isinstance() would ask for the __class__, and so the solution."""
    return issubclass(type(value), Own)


def remote_of(own: Own) -> "Remote":
    remote: Remote = object.__getattribute__(own, "_sandbox_remote")
    return remote


def number_of(own: Own) -> int:
    number: int = object.__getattribute__(own, "_sandbox_number")
    return number


def ask(own: Own, operation: str, *arguments: Any, **keywords: Any) -> Any:
    return remote_of(own).ask(operation, own, *arguments, **keywords)


def is_mixed(value: Any) -> bool:
    """Whether it came of arithmetic with plain data, and may have seen an expected value."""
    return type(value)._sandbox_bare and object.__getattribute__(value, "_sandbox_mixed") is True


def must_not_be_mixed(own: Own) -> None:
    """Raises TypeError."""
    if is_mixed(own):
        remote_of(own).note(MIXED)
        raise TypeError(MIXED)


def as_mixed(own: Own, result: Any) -> Any:
    """`result`, marked. Raises TypeError where it is plain data, even in part."""
    if not is_own(result) or not type(result)._sandbox_bare:
        remote_of(own).note(MIXED)
        raise TypeError(MIXED)
    object.__setattr__(result, "_sandbox_mixed", True)
    return result
