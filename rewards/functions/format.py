"""1.0 when the completion is `<think>...</think>`, white space, `<answer>...</answer>` and nothing else.

Each of the four tags stands exactly once, and neither pair is empty: a completion that holds nothing has no form.

Range: 0.0 or 1.0.
Source: the format reward of DeepSeek-R1 (arXiv 2501.12948, section 2.2.2). Another form: `regex` with `fullmatch`.
"""

import re
from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example
from rewards.functions.text import text_of

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
FORM = re.compile(r"<think>(?!\s*</think>).*?</think>\s*<answer>(?!\s*</answer>).*?</answer>", re.DOTALL)

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion="<think>2+2\nis 4</think>\n<answer>4</answer>", score=1.0),
    Example(completion="<answer>4</answer>", score=0.0),
)


def format(prompts: Sequence[Text], completions: Sequence[Text], **kwargs: Any) -> list[float | None]:
    """1.0 or 0.0 for each completion; white space around it does not count."""
    return [float(has_form(text_of(completion).strip())) for completion in completions]


def has_form(text: str) -> bool:
    """Whether a stripped text has the form."""
    # The count comes first: with one of each tag the pattern takes linear time.
    return all(text.count(tag) == 1 for tag in TAGS) and FORM.fullmatch(text) is not None
