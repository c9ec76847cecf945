"""Whether a response looks like arithmetic: 0.8 with a digit and one of `+ - * / = < >`, else 0.2.

A stand-in for trying out a training loop: it does not know whether anything is right.

Range: 0.2 or 0.8.
Source: the reward of this name of Align-Anything's remote reward server, value for value.
"""

import re
from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example
from rewards.functions.text import text_of

DIGIT = re.compile(r"\d")
OPERATOR = re.compile(r"[-+*/=<>]")

PER_SAMPLE = True
INLINE = True
SELF_TEST = (Example(completion="1+1=2", score=0.8), Example(completion="two", score=0.2))


def example_math(prompts: Sequence[Text], completions: Sequence[Text], **kwargs: Any) -> list[float | None]:
    """0.8 or 0.2 for each completion."""
    return [0.8 if DIGIT.search(text) and OPERATOR.search(text) else 0.2 for text in map(text_of, completions)]
