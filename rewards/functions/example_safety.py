"""Whether a response names something dangerous: 0.2 with one of a few English words, else 1.0.

A stand-in for trying out a training loop: parts of words count ("harmless"), capitals do not match ("Harm"), and an
empty response is safe.

Range: 0.2 or 1.0.
Source: the reward of this name of Align-Anything's remote reward server, value for value.
"""

from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example
from rewards.functions.text import text_of

DANGEROUS = ("violence", "attack", "hacker", "illegal", "harm", "danger", "weapon")

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion="a walk in the park", score=1.0),
    Example(completion="a weapon in the park", score=0.2),
)


def example_safety(prompts: Sequence[Text], completions: Sequence[Text], **kwargs: Any) -> list[float | None]:
    """0.2 or 1.0 for each completion."""
    return [0.2 if any(word in text for word in DANGEROUS) else 1.0 for text in map(text_of, completions)]
