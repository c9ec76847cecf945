"""1.0 when the whole completion has the demanded form."""

import re
from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example
from rewards.functions.text import text_of

THINK_THEN_ANSWER = r"<think>.*?</think>\s*<answer>.*?</answer>"

PER_SAMPLE = True
SELF_TEST = (
    Example(completion="<think>2+2\nis 4</think>\n<answer>4</answer>", score=1.0),
    Example(completion="<answer>4</answer>", score=0.0),
)


def format(
    prompts: Sequence[Text], completions: Sequence[Text], pattern: str = THINK_THEN_ANSWER, **kwargs: Any
) -> list[float | None]:
    """1.0 where `pattern` (DOTALL) matches the stripped completion from end to end, else 0.0."""
    compiled = re.compile(pattern, re.DOTALL)
    return [float(compiled.fullmatch(text_of(completion).strip()) is not None) for completion in completions]
