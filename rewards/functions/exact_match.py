"""1.0 when the completion is the answer, character for character, but for white space around it.

Range: 0.0 or 1.0.
Source: the usual exact match, without SQuAD's normalisation (`token_f1` has that).
"""

from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example
from rewards.functions.text import gold_text, text_of

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion=" 42\n", columns={"answer": "42"}, score=1.0),
    Example(completion="42.0", columns={"answer": "42"}, score=0.0),
)


def exact_match(
    prompts: Sequence[Text], completions: Sequence[Text], answer: Sequence[Any], **kwargs: Any
) -> list[float | None]:
    """1.0 or 0.0; None where `answer` is null. Raises ValueError for a gold that is neither text nor number."""
    return [
        None if gold is None else float(text_of(completion).strip() == gold_text(gold))
        for completion, gold in zip(completions, answer, strict=True)
    ]
