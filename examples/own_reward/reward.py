"""A reward function of your own: TRL's shape, one number per completion, in order."""

from typing import Any


def close_enough(
    prompts: list[Any], completions: list[Any], answer: list[str], tolerance: int = 2, **columns: Any
) -> list[float]:
    """1 for the right sum, less the further off it is, 0 beyond `tolerance` or for what is no number.

    `answer` is a column of the data: every parameter that is not prompts or completions has to be one, or to stand in
    `params`, as `tolerance` does. `orchestrate check` compares, without importing this file.
    """
    return [
        _score(completion[0]["content"], int(gold), tolerance)
        for completion, gold in zip(completions, answer, strict=True)
    ]


def _score(text: str, gold: int, tolerance: int) -> float:
    if not text.strip().isdigit():
        return 0.0
    distance = abs(int(text) - gold)
    return max(0.0, 1.0 - distance / (tolerance + 1))
