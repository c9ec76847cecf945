"""Whether each reward belongs to its completion, whatever the order of the batch."""

from collections.abc import Iterator, Sequence
from math import isclose
from random import Random

SAME = 1e-6  # relative; a model's score may differ in its last bits from call to call

Values = Sequence[float | None]


def shuffled(count: int, group_size: int) -> list[int]:
    """A fixed order: groups change places as wholes, and samples change places within them.

    It undoes itself neither turned round nor repeated, so that a function which turns its list round cannot hide.
    """
    random, starts = Random(1), list(range(0, count, group_size))
    random.shuffle(starts)
    groups = [list(range(start, min(start + group_size, count))) for start in starts]
    for group in groups:
        random.shuffle(group)
    return [place for group in groups for place in group]


def put_back(values: Values, order: Sequence[int]) -> list[float | None]:
    """What each sample got, from what came for the samples in `order`."""
    by_sample = dict(zip(order, values, strict=True))
    return [by_sample[sample] for sample in range(len(order))]


def first_difference(one: Values, other: Values) -> int | None:
    for at, (a, b) in enumerate(zip(one, other, strict=True)):
        if (a is None) != (b is None) or not isclose(a or 0.0, b or 0.0, rel_tol=SAME):
            return at
    return None


def rearranged(one: Values, other: Values) -> bool:
    """The same values, but some at another place."""
    by_size = [sorted(values, key=lambda value: (value is None, value or 0.0)) for values in (one, other)]
    return first_difference(*by_size) is None and first_difference(one, other) is not None


def shifted(first: Values, second: Values, order: Sequence[int], group_size: int) -> str | None:
    """How a function that compares samples moves its rewards, in words; None: nothing shows that it does.

    `second` came for the samples in `order`, `first` for them as they are. Asked only where the two disagree.
    """
    for words, goes in _moves(len(first), group_size):
        meant: list[float | None] = [None] * len(first)
        for place, value in enumerate(first):
            meant[goes[place]] = value
        if first_difference([meant[order[goes[place]]] for place in range(len(order))], second) is None:
            return words
    return None


def _moves(count: int, group_size: int) -> Iterator[tuple[str, list[int]]]:
    """The usual mistakes: words, and for each place whose reward stands there."""
    for words, size in (("batch", count), ("group", group_size)):
        blocks = [list(range(start, min(start + size, count))) for start in range(0, count, size)]
        yield f"turned round within the {words}", [place for block in blocks for place in reversed(block)]
        yield f"one place too early in the {words}", [place for block in blocks for place in (*block[1:], block[0])]
        yield f"one place too late in the {words}", [place for block in blocks for place in (block[-1], *block[:-1])]
