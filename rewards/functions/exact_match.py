"""1.0 when the completion is the answer, character for character, but for white space around it."""

from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example
from rewards.functions.text import text_of

PER_SAMPLE = True
SELF_TEST = (
    Example(completion=" 42\n", columns={"answer": "42"}, score=1.0),
    Example(completion="42.0", columns={"answer": "42"}, score=0.0),
)


def exact_match(
    prompts: Sequence[Text], completions: Sequence[Text], answer: Sequence[Any], **kwargs: Any
) -> list[float | None]:
    """1.0 or 0.0; None where `answer` is null (the row is not ours to score)."""
    return [
        None if gold is None else float(text_of(completion).strip() == str(gold).strip())
        for completion, gold in zip(completions, answer, strict=True)
    ]
