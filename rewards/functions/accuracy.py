r"""1.0 when the completion's final answer equals the gold one mathematically, judged by math-verify.

math-verify's own time limits use SIGALRM, which works in main threads only and has made servers pay 1.0 for wrong
answers; they are off here. The worker that calls us holds the limit: a completion such as `9^{9^{9^9}}` ends there.
"""

import logging
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

from rewards.batch import Text
from rewards.contract import Example, short_repr
from rewards.functions.text import text_of

# It warns once per process that the limits are off; that is the point.
for _name in ("math_verify.parser", "math_verify.grader"):
    logging.getLogger(_name).setLevel(logging.ERROR)

# `\boxed{}` is where models are told to put the final answer: it outranks any other match.
PREDICTION = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())

INTEGER = re.compile(r"[+-]?\d{1,100}")
PLAIN_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?|[+-]?\.\d+")
SCIENTIFIC = re.compile(r"[+-]?\d+(\.\d+)?[eE][+-]?\d{1,2}")
NUMBER_IN_TEXT = re.compile(r"\d[\d,.]*(/\d+)?")
DELIMITED = re.compile(r"\$.+\$|\\boxed|\\\(.+\\\)|\\\[.+\\\]", re.DOTALL)
WORD = re.compile(r"[A-Za-z]{3,}")
ANSWER_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)

PER_SAMPLE = True
SELF_TEST = (
    Example(completion=r"So it is $\boxed{\frac{2}{4}}$.", columns={"answer": r"\frac{1}{2}"}, score=1.0),
    Example(completion=r"So it is $\boxed{\frac{1}{3}}$.", columns={"answer": r"\frac{1}{2}"}, score=0.0),
)


def accuracy(
    prompts: Sequence[Text], completions: Sequence[Text], answer: Sequence[Any], **kwargs: Any
) -> list[float | None]:
    """1.0 or 0.0; None where `answer` is null. Raises ValueError for a gold answer that cannot be parsed."""
    return [
        None if gold is None else _score(text_of(completion), gold)
        for completion, gold in zip(completions, answer, strict=True)
    ]


def _score(completion: str, gold: object) -> float:
    gold_text, answer = str(gold).strip(), _answer_part(completion)
    if INTEGER.fullmatch(gold_text) and INTEGER.fullmatch(answer):
        return float(int(gold_text) == int(answer))  # two plain integers need no algebra
    return float(verify(list(parse_gold(gold_text)), _parse_prediction(completion, answer), timeout_seconds=None))


def _answer_part(completion: str) -> str:
    """The last <answer>...</answer>, or everything. What a model thinks before its answer does not count."""
    tagged = ANSWER_TAG.findall(completion)
    return (tagged[-1] if tagged else completion).strip()


def _parse_prediction(completion: str, answer: str) -> list[Any]:
    # A tag holds nothing but the answer, so it may leave out the dollar signs, just as a gold answer may.
    alone = _parse_expression(answer) if answer != completion.strip() else []
    return alone or _parse(answer, PREDICTION)


@lru_cache(maxsize=4096)
def parse_gold(gold: str) -> tuple[Any, ...]:
    """The expressions of a gold answer; a GSM8K solution counts from its `####`. Raises ValueError without any."""
    parsed = _parse_expression(gold.rpartition("####")[2].strip())
    if not parsed:
        raise ValueError(f"the gold answer {short_repr(gold)} is not a number or a mathematical expression")
    return tuple(parsed)


def _parse_expression(text: str) -> list[Any]:
    """Parse text that is meant to be one expression, with or without LaTeX delimiters; [] when it is not."""
    if SCIENTIFIC.fullmatch(text):
        text = format(Decimal(text), "f")  # LaTeX would read 1e5 as 1 times e times 5
    if PLAIN_NUMBER.fullmatch(text):
        return _parse(text, (ExprExtractionConfig(),))
    if DELIMITED.search(text):
        return _parse(text, PREDICTION)
    text = text.replace("$", "")
    if WORD.search(text) and "\\" not in text:  # "3 apples" is 3; "7 or 8" and "none" are no answers
        return _parse(text, (ExprExtractionConfig(),)) if len(NUMBER_IN_TEXT.findall(text)) == 1 else []
    return _parse(f"${text}$", (LatexExtractionConfig(),))


def _parse(text: str, targets: Sequence[Any]) -> list[Any]:
    # no_fallback: the unparsed string would be compared as a string, and an unparseable gold would look like a gold.
    return list(parse(text, targets, fallback_mode="no_fallback", parsing_timeout=None))
