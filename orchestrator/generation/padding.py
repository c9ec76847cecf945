"""How sequences of different lengths share a pass of the model, and how much of the pass may be padding."""

from collections.abc import Sequence

PADDING_SHARE = 0.25
PADDING_FREE = 64
"""Positions. A pass of its own costs more than that many."""


def may_share(num_rows: int, longest: int, tokens: int) -> bool:
    """Whether rows of `tokens` tokens in all, the longest of `longest`, may be one pass.

    The bound that holds for every pass of the server: over all its rows, the positions that are padding are at most a
    quarter of the tokens (`PADDING_SHARE`), or at most 64 (`PADDING_FREE`).
    """
    return num_rows * longest - tokens <= max(PADDING_SHARE * tokens, PADDING_FREE)


def groups(lengths: Sequence[int], most_positions: int | None = None) -> list[list[int]]:
    """Indices of sequences that share a pass, longest first: as large as the bound and `most_positions` allow.

    A sequence that alone exceeds `most_positions` gets a pass of its own.
    """
    found: list[list[int]] = []
    longest = tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        rows = len(found[-1]) + 1 if found else 1
        full = most_positions is not None and rows * longest > most_positions
        if not found or full or not may_share(rows, longest, tokens + lengths[index]):
            found.append([])
            longest, tokens = lengths[index], 0
        found[-1].append(index)
        tokens += lengths[index]
    return found
