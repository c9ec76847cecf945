r"""1.0 when the completion's final answer equals the gold one mathematically, judged by math-verify.

What counts is the last `<answer>...</answer>` after the thinking (`</think>`), or all that follows the thinking; in it
a `\boxed{}` outranks any other match. A gold answer is LaTeX, a number, an expression, or a solution that ends in
`#### gold`.

math-verify's own time limits use SIGALRM, which works in main threads only and has made servers pay 1.0 for wrong
answers; they are off here. The worker that calls us holds the limit: a completion such as `9^{9^{9^9}}` ends there.

Range: 0.0 or 1.0.
Source: math-verify (github.com/huggingface/Math-Verify).
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
from rewards.functions.text import answer_part, gold_text, text_of

# It warns once per process that the limits are off; that is the point.
for _name in ("math_verify.parser", "math_verify.grader"):
    logging.getLogger(_name).setLevel(logging.ERROR)

# `\boxed{}` is where models are told to put the final answer: it outranks any other match.
# One config for all: math-verify keeps the patterns of the last config only, and builds them anew for another.
LATEX = LatexExtractionConfig(boxed_match_priority=0)
PREDICTION = (LATEX, ExprExtractionConfig())

INTEGER = re.compile(r"[+-]?\d{1,100}")
BOXED_INTEGER_LAST = re.compile(r"(?<!\S)(\${0,2})\\boxed\{([+-]?\d{1,100})\}\1\.?")
PLAIN_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?|[+-]?\.\d+")
SCIENTIFIC = re.compile(r"[+-]?\d+(\.\d+)?[eE][+-]?\d{1,2}")
NUMBER_IN_TEXT = re.compile(r"\d[\d,.]*(/\d+)?")
DELIMITED = re.compile(r"\$.+\$|\\boxed|\\\(.+\\\)|\\\[.+\\\]", re.DOTALL)
WORD = re.compile(r"[A-Za-z]{3,}")

PER_SAMPLE = True
SELF_TEST = (
    Example(completion=r"So it is $\boxed{\frac{2}{4}}$.", columns={"answer": r"\frac{1}{2}"}, score=1.0),
    Example(completion=r"So it is $\boxed{\frac{1}{3}}$.", columns={"answer": r"\frac{1}{2}"}, score=0.0),
)
LONGEST_KEPT = 4_000  # characters of an answer whose grade is remembered; bounds the memory of the cache


def accuracy(
    prompts: Sequence[Text], completions: Sequence[Text], answer: Sequence[Any], **kwargs: Any
) -> list[float | None]:
    """1.0 or 0.0; None where `answer` is null. Raises ValueError for a gold answer that cannot be parsed."""
    return [
        None if gold is None else _score(text_of(completion), gold)
        for completion, gold in zip(completions, answer, strict=True)
    ]


def _score(completion: str, gold: object) -> float:
    answer = answer_part(completion)
    return float(equal(gold_text(gold), answer, alone=answer != completion.strip()))


def equal(gold: str, answer: str, *, alone: bool) -> bool:
    """Whether a stripped answer equals the gold one. `alone`: it comes from a tag, so it may be a bare expression.

    Raises ValueError for a gold answer that cannot be parsed.
    """
    if INTEGER.fullmatch(gold) and (number := _plain_integer(answer)) is not None:
        return int(gold) == number  # two plain integers need no algebra
    return _graded(gold, answer, alone) if len(answer) <= LONGEST_KEPT else _grade(gold, answer, alone)


def _plain_integer(answer: str) -> int | None:
    """The integer that the answer is, or that its only box holds at its end."""
    if INTEGER.fullmatch(answer):
        return int(answer)
    start = answer.find("\\boxed")
    if start < 0 or answer.rfind("\\boxed") != start:
        return None
    start -= sum(1 for at in (start - 1, start - 2) if at >= 0 and answer[at] == "$")
    boxed = BOXED_INTEGER_LAST.fullmatch(answer, start)
    return int(boxed[2]) if boxed else None


def _grade(gold: str, answer: str, alone: bool) -> bool:
    return bool(verify(list(parse_gold(gold)), _parse_prediction(answer, alone), timeout_seconds=None))


_graded = lru_cache(maxsize=4096)(_grade)


def _parse_prediction(answer: str, alone: bool) -> list[Any]:
    # A tag holds nothing but the answer, so it may leave out the dollar signs, just as a gold answer may.
    return (_parse_expression(answer) if alone else []) or _parse(answer, PREDICTION)


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
    return _parse(f"${text}$", (LATEX,))


def _parse(text: str, targets: Sequence[Any]) -> list[Any]:
    # no_fallback: the unparsed string would be compared as a string, and an unparseable gold would look like a gold.
    return list(parse(text, targets, fallback_mode="no_fallback", parsing_timeout=None))
