"""What the judge can ask for an object of the solution's."""

import functools
import operator
from collections.abc import Callable, Coroutine
from typing import Any

from rewards.sandbox.objects import content
from rewards.sandbox.operators import BINARY, NUMBERS, ORDER, UNARY


def _leave(manager: Any, error: BaseException | None = None) -> bool:
    kind = type(error) if error is not None else None
    return bool(type(manager).__exit__(manager, kind, error, None))


@functools.cache
def _loop() -> Any:
    import asyncio  # 30 ms, which few solutions need

    return asyncio.Runner()


def _wait_for(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return _loop().run(coroutine)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "len": len,
    "iter": iter,
    "next": next,
    "reversed": reversed,
    "contains": operator.contains,
    "bool": bool,
    "str": str,
    "repr": repr,
    "format": format,
    "hash": hash,
    "enter": lambda manager: type(manager).__enter__(manager),
    "exit": _leave,
    "isinstance": lambda kind, instance: isinstance(instance, kind),
    "issubclass": lambda kind, other: issubclass(other, kind),
    "equal": lambda one, other: bool(one == other),
    "content": content,
    "await": _wait_for,
    **BINARY,
    **ORDER,
    **UNARY,
    **NUMBERS,
}
