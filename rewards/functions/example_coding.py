"""Whether a response looks like Python: 0.9 with a keyword and indentation, 0.6 with a keyword alone, else 0.3.

A stand-in for trying out a training loop: keywords are found inside words too ("gif is"), and nothing is run.

Range: 0.3, 0.6 or 0.9.
Source: the reward of this name of Align-Anything's remote reward server, value for value.
"""

from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example
from rewards.functions.text import text_of

KEYWORDS = ("def ", "class ", "import ", "return ", "if ", "for ", "while ")
INDENTATION = ("    ", "\t")

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion="def f():\n    return 1", score=0.9),
    Example(completion="no program", score=0.3),
)


def example_coding(prompts: Sequence[Text], completions: Sequence[Text], **kwargs: Any) -> list[float | None]:
    """0.9, 0.6 or 0.3 for each completion."""
    return [_score(text_of(completion)) for completion in completions]


def _score(text: str) -> float:
    if not any(keyword in text for keyword in KEYWORDS):
        return 0.3
    return 0.9 if any(mark in text for mark in INDENTATION) else 0.6
