"""Sums of two numbers below 30, with their answers: the task that needs no download.

The 900 prompts are split once and for all, whatever the seed of a run. A pair and its mirror (12+7, 7+12) are on
the same side, so that a held-out prompt cannot be answered by having seen its mirror.
"""

from orchestrator.data.errors import ROWS_KEYS, DataError
from orchestrator.data.sampling import draw, shuffled

LIMIT = 30
NUM_HELDOUT = 100
SPLIT_SALT = "arithmetic-split"

Pair = tuple[int, int]


def _prompt(pair: Pair) -> str:
    return f"{pair[0]}+{pair[1]}="


def pairs(split: str) -> list[Pair]:
    """Every pair of a split, in an order that never changes: 800 for `train`, 100 for `heldout`."""
    unordered = [(a, b) for a in range(LIMIT) for b in range(a + 1, LIMIT)]
    mirrored = shuffled(unordered, salt=SPLIT_SALT, key=_prompt)[: NUM_HELDOUT // 2]
    heldout = {*mirrored, *((b, a) for a, b in mirrored)}
    return [(a, b) for a in range(LIMIT) for b in range(LIMIT) if ((a, b) in heldout) == (split == "heldout")]


def arithmetic_rows(split: str, rows: int | None, seed: int) -> list[dict[str, object]]:
    """Rows {prompt: "12+7=", answer: "19"}. `train` repeats only once every pair was drawn; `heldout` never does."""
    pool = pairs(split)
    wanted = len(pool) if rows is None else rows
    if split == "heldout" and wanted > len(pool):
        raise DataError(
            f"{ROWS_KEYS[split]} = {wanted}, but source arithmetic holds out {len(pool)} prompts; "
            f"fix: set {ROWS_KEYS[split]} to at most {len(pool)}"
        )
    drawn = draw(pool, wanted, seed=seed, key=_prompt)
    return [{"prompt": _prompt((a, b)), "answer": str(a + b)} for a, b in drawn]
