"""Seeded order and choice of rows.

Sorting by a hash rather than `random.shuffle`: the same seed gives the same rows on every Python version.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import count
from typing import TypeVar

T = TypeVar("T")


def shuffled(items: Sequence[T], *, salt: str, key: Callable[[T], str]) -> list[T]:
    """A permutation of `items` fixed by `salt`; `key` must be unique per item, or ties keep their order."""
    return sorted(items, key=lambda item: sha256(f"{salt}:{key(item)}".encode()).digest())


def draw(items: Sequence[T], num: int, *, seed: int, key: Callable[[T], str]) -> list[T]:
    """`num` items without repeats until all were drawn, then reshuffled and drawn again."""
    drawn: list[T] = []
    for epoch in count():
        if len(drawn) >= num:
            break
        drawn += shuffled(items, salt=f"{seed}:{epoch}", key=key)
    return drawn[:num]
