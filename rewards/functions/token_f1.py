"""F1 of the answer's words against the gold answer's: the overlap counts, not the order.

Both are normalised first: lower case, no punctuation (curly quotes too), no `\\text{}`, no articles (a, an, the).
`yes`, `no` and `noanswer` must match exactly: they share no word with a longer answer by merit. Of several gold answers
the best match counts. The answer is the last `\\boxed{...}` or `<answer>...</answer>` after the thinking, or all that
follows the thinking.

Range: 0.0 to 1.0.
Source: the SQuAD evaluation (arXiv 1606.05250, section 6.1), with HotpotQA's rule for yes and no (arXiv 1809.09600).
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, short_repr
from rewards.functions.text import answer_part, gold_text, last_boxed, text_of, without_styles

ARTICLE = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation + "‘’“”´„«»")
ALL_OR_NOTHING = (["yes"], ["no"], ["noanswer"])

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion="<answer>The Eiffel Tower!</answer>", columns={"answer": "eiffel tower"}, score=1.0),
    Example(completion="Big Ben", columns={"answer": ["Eiffel Tower", "the Tower"]}, score=0.0),
)


def token_f1(
    prompts: Sequence[Text], completions: Sequence[Text], answer: Sequence[Any], **kwargs: Any
) -> list[float | None]:
    """0.0 to 1.0; None where `answer` is null. Raises ValueError for a gold answer without any word.

    A row's `answer` is a string, a number, or a list of these: alternatives.
    """
    return [
        None if gold is None else _best(_answer_of(text_of(completion)), gold)
        for completion, gold in zip(completions, answer, strict=True)
    ]


def words(text: str) -> list[str]:
    """The words of a text after SQuAD's normalisation."""
    return ARTICLE.sub(" ", without_styles(text).lower().translate(NO_PUNCTUATION)).split()


def _answer_of(text: str) -> str:
    part = answer_part(text)
    boxed = last_boxed(part)
    return part if boxed is None else boxed


def _best(said: str, gold: object) -> float:
    alternatives = gold if isinstance(gold, (list, tuple)) else [gold]
    golds = [found for one in alternatives if (found := words(gold_text(one)))]
    if not golds:
        raise ValueError(f"the gold answer {short_repr(gold)} has no words to compare (articles do not count)")
    said_words = words(said)
    return max(_f1(said_words, one) for one in golds)


def _f1(said: list[str], gold: list[str]) -> float:
    if said in ALL_OR_NOTHING or gold in ALL_OR_NOTHING:
        return float(said == gold)
    common = (Counter(said) & Counter(gold)).total()
    return 2 * common / (len(said) + len(gold))
