r"""1.0 when the completion's final answer equals the gold one mathematically, judged by math-verify.

What counts is the last `<answer>...</answer>` after the thinking (`</think>`), or all that follows the thinking; in it
the last `\boxed{}` outranks any other match. A gold answer is LaTeX, a number, an expression, a solution that ends in
`#### gold`, or a text.

Before that, both are made uniform: signs and digits are those of ASCII; currency, units after a number, separators of
thousands (`1,234`, `1\,234`, `10 000`) and a final period do not count; `5e3` is 5000 and `1 1/2` is 3/2. A percent
sign may be left out, or be worked out: 18\% equals 18 and 0.18, but 18 does not equal 0.18. A number base may be left
out, but not be another. Numbers below 0.01 must agree in four digits; above, math-verify rounds to six decimals.

A gold answer that is no expression (`\text{Evelyn}`, `4 \text{ (mod }7)`) must be the whole final answer, as a text:
case, white space and `\text{}` do not count. Two or more capitals (`AB`) are a text too, whose case counts.

math-verify's own time limits use SIGALRM, which works in main threads only and has made servers pay 1.0 for wrong
answers; they are off here. The worker that calls us holds the limit: a completion such as `9^{9^{9^9}}` ends there.

Range: 0.0 or 1.0.
Source: math-verify (github.com/huggingface/Math-Verify).
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy import Expr, FiniteSet, S  # type: ignore[import-untyped]
from sympy.core.relational import Equality  # type: ignore[import-untyped]

from rewards.batch import Text
from rewards.contract import Example, short_repr
from rewards.functions.math_text import (
    BASED,
    MIXED,
    PLAIN_NUMBER,
    both_signs,
    hundredth,
    single,
    spelt_products,
    uniform,
    words,
)
from rewards.functions.text import BOX, answer_part, gold_text, last_boxed, text_of

# It warns once per process that the limits are off; that is the point.
for _name in ("math_verify.parser", "math_verify.grader"):
    logging.getLogger(_name).setLevel(logging.ERROR)

# `\boxed{}` is where models are told to put the final answer: it outranks any other match.
# One config for all: math-verify keeps the patterns of the last config only, and builds them anew for another.
LATEX = LatexExtractionConfig(boxed_match_priority=0)
PREDICTION = (LATEX, ExprExtractionConfig())

INTEGER = re.compile(r"[+-]?\d{1,100}")
CAPITALS = re.compile(r"[A-Z]{2,}")
DELIMITED = re.compile(r"\$.+\$|\\boxed|\\\(.+\\\)|\\\[.+\\\]", re.DOTALL)
WORD = re.compile(r"[A-Za-z]{3,}")

PER_SAMPLE = True
SELF_TEST = (
    Example(completion=r"So it is $\boxed{\frac{2}{4}}$.", columns={"answer": r"\frac{1}{2}"}, score=1.0),
    Example(completion=r"So it is $\boxed{\frac{1}{3}}$.", columns={"answer": r"\frac{1}{2}"}, score=0.0),
)
SMALL, CLOSE = 0.01, 1e-4  # four digits of a number below SMALL: about what six decimals are just above it
LONGEST_KEPT = 4_000  # characters of an answer whose grade is remembered; bounds the memory of the cache


def accuracy(
    prompts: Sequence[Text], completions: Sequence[Text], answer: Sequence[Any], **kwargs: Any
) -> list[float | None]:
    """1.0 or 0.0; None where `answer` is null. Raises ValueError for an empty gold answer."""
    return [
        None if gold is None else _score(text_of(completion), gold)
        for completion, gold in zip(completions, answer, strict=True)
    ]


@dataclass(frozen=True)
class Gold:
    """A gold answer as it is compared. Without expressions it is a text."""

    text: str
    expressions: tuple[Any, ...]
    hundredth: tuple[Any, ...]
    """What it is where its percent sign is worked out."""


def _score(completion: str, gold: object) -> float:
    answer = answer_part(completion)
    return float(equal(gold_text(gold), answer, alone=answer != completion.strip()))


def equal(gold: str, answer: str, *, alone: bool) -> bool:
    """Whether a stripped answer equals the gold one. `alone`: it comes from a tag, so it may be a bare expression.

    Raises ValueError for an empty gold answer.
    """
    wanted = parse_gold(gold)  # first, for a bad gold is an error whatever the answer
    if len(answer) > LONGEST_KEPT:
        return _grade(gold, answer, alone)
    boxed = last_boxed(answer)
    said = (answer if boxed is None else boxed).strip()
    if INTEGER.fullmatch(said) and INTEGER.fullmatch(wanted.text):
        return int(said) == int(wanted.text)  # two plain integers need no algebra
    return _graded(gold, answer, alone)


@lru_cache(maxsize=4096)
def parse_gold(gold: str) -> Gold:
    """A gold answer; a GSM8K solution counts from its `####`. Raises ValueError where nothing is left to compare."""
    last = gold.rpartition("####")[2]
    boxed = last_boxed(last)
    raw = last if boxed is None else boxed
    text = single(raw)
    if not words(text):
        raise ValueError(f"the gold answer {short_repr(gold)} is empty: there is nothing to compare with")
    share = hundredth(raw)
    expressions = () if CAPITALS.fullmatch(text) else tuple(_parse_expression(text))
    return Gold(text, expressions, tuple(_parse_expression(share)) if share else ())


def _grade(gold: str, answer: str, alone: bool) -> bool:
    wanted, boxed = parse_gold(gold), last_boxed(answer)
    raw = answer if boxed is None else boxed
    said = single(raw)
    if words(said) == words(wanted.text):
        return True
    if not wanted.expressions:
        return not CAPITALS.fullmatch(wanted.text) and words(said).casefold() == words(wanted.text).casefold()
    if (based := BASED.fullmatch(wanted.text)) and (other := BASED.fullmatch(said)) and based[2] != other[2]:
        return False
    if boxed is not None:
        found = _parse_expression(said) or _parse(rf"\boxed{{{uniform(boxed)}}}", (LATEX,))
    elif alone or PLAIN_NUMBER.fullmatch(said) or MIXED.fullmatch(raw):
        # A tag holds nothing but the answer, so it may leave out the dollar signs, just as a gold answer may.
        found = _parse_expression(said) or _parse(uniform(answer), PREDICTION)
    else:
        found = _parse(uniform(answer), PREDICTION)
    return _verified(wanted.expressions, found) or _as_a_share(wanted, raw, found) or _in_boxes(wanted, answer)


_graded = lru_cache(maxsize=4096)(_grade)


def _as_a_share(wanted: Gold, raw: str, found: Sequence[Any]) -> bool:
    """Whether they are equal once the percent sign, which one of them has, is worked out."""
    share = hundredth(raw)
    if wanted.hundredth:
        return share is None and _verified(wanted.hundredth, found)
    return share is not None and _verified(wanted.expressions, _parse_expression(share))


def _in_boxes(wanted: Gold, answer: str) -> bool:
    """Whether the gold answer is a set whose elements the answer boxes one by one."""
    several = any(isinstance(one, FiniteSet) and len(one) > 1 for one in wanted.expressions)
    return several and len(BOX.findall(answer)) > 1 and _verified(wanted.expressions, _parse(answer, PREDICTION))


def _verified(wanted: Sequence[Any], found: Sequence[Any]) -> bool:
    return any(verify(g, f, timeout_seconds=None) and not _small_and_apart(g, f) for g in wanted for f in found)


def _small_and_apart(one: Any, other: Any) -> bool:
    """Whether two numbers differ that are both near 0, where math-verify's six decimals tell nothing apart."""
    numbers = [side.rhs if isinstance(side, Equality) else side for side in (one, other)]
    if not all(isinstance(number, Expr) and number.is_number and number.is_real for number in numbers):
        return False
    first, second = (S(number.doit()).evalf(15) for number in numbers)
    largest = max(abs(first), abs(second))
    return bool(largest < SMALL and abs(first - second) > CLOSE * largest)


def _parse_expression(text: str) -> list[Any]:
    """Parse a single() text that is meant to be one expression, with or without LaTeX delimiters; [] if it is not."""
    if PLAIN_NUMBER.fullmatch(text):
        return _parse(text, (ExprExtractionConfig(),))
    if DELIMITED.search(text):
        return _parse(text, PREDICTION)
    text = text.replace("$", "")
    if WORD.search(text) and "\\" not in text:
        return []  # "7 or 8" and "none" are no expressions
    found = _parse(f"${text}$", (LATEX,))
    if not found and (both := both_signs(text)):  # it knows the sign, but not within a fraction
        return _parse(f"${both}$", (LATEX,))
    return found


def _parse(text: str, targets: Sequence[Any]) -> list[Any]:
    if LATEX in targets:
        text = spelt_products(text)
    # no_fallback: the unparsed string would be compared as a string, and an unparseable gold would look like a gold.
    return list(parse(text, targets, fallback_mode="no_fallback", parsing_timeout=None))
