"""What was already looked up: a sweep asks for the same facts again and again."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class FactsCache:
    """Facts of one moment, by the function that finds them and all that it is told: nothing else decides them."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, str], Any] = {}

    def __call__(self, find: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        # By text, because a recipe's mappings and lists cannot be keys themselves.
        key = (find, repr((args, kwargs)))
        if key not in self._known:
            self._known[key] = find(*args, **kwargs)
        found: T = self._known[key]
        return found
