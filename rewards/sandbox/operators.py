"""The special methods of numbers: which there are, and what they do on an object of the solution's.

Arithmetic with plain data would show the solution an expected value: `abs(f(2) - 4) < 1e-6`. So it may only give
another object of the solution's, which then has no number, truth or order (reach.is_mixed). Between two objects of the
solution's everything goes.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

from rewards.sandbox.reach import MIXED, as_mixed, ask, is_mixed, is_own, must_not_be_mixed, remote_of

Functions = dict[str, Callable[..., Any]]


def _of_operator(*names: str) -> Functions:
    return {f"__{name}__": getattr(operator, f"__{name}__") for name in names}


def reflected(name: str) -> str:
    return name.replace("__", "__r", 1)


BINARY: Functions = {
    **_of_operator("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"),
    **_of_operator("lshift", "rshift"),
    "__divmod__": divmod,
}
ORDER = _of_operator("lt", "le", "gt", "ge")
UNARY = _of_operator("neg", "pos", "invert", "abs")
NUMBERS: Functions = {
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__index__": operator.index,
    "__round__": round,
    "__trunc__": math.trunc,
    "__floor__": math.floor,
    "__ceil__": math.ceil,
}
EQUAL = "__eq__"
READS = ("__iter__", "__len__", "__getitem__", "__contains__")


def redefined(kind: type, base: type, names: tuple[str, ...]) -> list[str]:
    """Which of these `kind` does otherwise than `base`."""
    return [name for name in names if _of_instances(kind, name) is not _of_instances(base, name)]


def _of_instances(kind: type, name: str) -> Any:
    """Not getattr(), which would also find what a metaclass does."""
    return next((vars(c)[name] for c in kind.__mro__ if name in vars(c)), None)


def _binary(name: str, *, swapped: bool) -> Callable[[Any, Any], Any]:
    def operate(self: Any, other: Any) -> Any:
        one, two = (other, self) if swapped else (self, other)
        result = remote_of(self).ask(name, one, two)
        if is_own(other) and not is_mixed(self) and not is_mixed(other):
            return result
        return as_mixed(self, result)

    return operate


def _order(name: str) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        if not is_own(other) or is_mixed(self) or is_mixed(other):
            remote_of(self).note(MIXED)
            return NotImplemented
        return ask(self, name, other) is True

    return compare


def _unary(name: str) -> Callable[[Any], Any]:
    def operate(self: Any) -> Any:
        result = ask(self, name)
        return as_mixed(self, result) if is_mixed(self) else result

    return operate


def _number(name: str) -> Callable[..., Any]:
    def convert(self: Any, *digits: Any) -> Any:
        must_not_be_mixed(self)
        return ask(self, name, *digits)

    return convert


METHODS: Functions = {
    **{name: _binary(name, swapped=False) for name in BINARY},
    **{reflected(name): _binary(name, swapped=True) for name in BINARY},
    **{name: _order(name) for name in ORDER},
    **{name: _unary(name) for name in UNARY},
    **{name: _number(name) for name in NUMBERS},
}
