r"""DAPO's score for mathematics: +1 for the right answer on the last `Answer:` line, -1 for anything else.

Only the last 300 characters are looked at. Answer and gold are compared as texts after the usual clean-up of LaTeX (no
`x =` before the value; no `\text`, `\left`, spaces, dollar and percent signs, units), and as numbers where both are
plain numbers: the gold need not be one. 18\% is 18, not 0.18. It returns dicts: the recipe needs `key: score`; `acc` is
logged beside it.

Range: score -1.0 or 1.0, acc 0.0 or 1.0.
Source: DAPO (arXiv 2503.14476), equation 7, with the answer line and the 300 characters of verl's `math_dapo`; the
clean-up after appendix D.1 of Minerva (arXiv 2206.14858). The overlong term of equation 13 is `soft_overlong`.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, short_repr
from rewards.functions.math_text import uniform
from rewards.functions.text import gold_text, last_boxed, text_of, without_styles

LOOKED_AT = 300  # characters from the end
ANSWER_LINE = re.compile(r"answer\W{0,4}?:\s*([^\n]+)", re.IGNORECASE)
NAME = re.compile(r"[\s$\\(\[]*[A-Za-z]+(?:_\{?\w+\}?)?(?:\([A-Za-z]\))?\s*")
RELATION = re.compile(r"[<>!≤≥≠]|\\(?:le|ge|ne|lt|gt)q?\b")
SHORT_FRACTION = re.compile(r"\\frac(\w)(\w)")
SHORT_ROOT = re.compile(r"\\sqrt(\w)")
FILLER_WORD = re.compile(
    r"\ban? (?=[a-z]{2})|"
    r"\b(?:square|cubic|units?|dollars|cents|degrees|inches|feet|miles|meters|metres|cm|km|mph|pounds|grams|seconds|"
    r"minutes|hours|days|points|ways|integers|digits|students|edges)\b"
)
FILLER = re.compile(r"\\left\b|\\right\b|\\[!,;: $%()\[\]]|\^\{?\\circ\s*\}?|</?answer>|[\s$*]")
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
NUMBER = re.compile(r"[+-]?\d*\.?\d+")

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion="2 and 2 is 4.\nAnswer: $4$", columns={"answer": "4"}, score=1.0),
    Example(completion="2 and 2 is 4.", columns={"answer": "4"}, score=-1.0),
)


def dapo(
    prompts: Sequence[Text], completions: Sequence[Text], answer: Sequence[Any], **kwargs: Any
) -> list[dict[str, float] | None]:
    """{score: +1 or -1, acc: 1 or 0}; None where `answer` is null. Raises ValueError for a gold without content."""
    return [
        None if gold is None else _scored(text_of(completion), gold)
        for completion, gold in zip(completions, answer, strict=True)
    ]


def _scored(completion: str, gold: object) -> dict[str, float]:
    wanted = clean(gold_text(gold))
    if not wanted:
        raise ValueError(f"nothing of the gold answer {short_repr(gold)} is left to compare with")
    lines = ANSWER_LINE.findall(completion[-LOOKED_AT:])
    right = bool(lines) and _same(clean(lines[-1]), wanted)
    return {"score": 1.0 if right else -1.0, "acc": float(right)}


def clean(answer: str) -> str:
    """An answer without what does not change its value."""
    boxed = last_boxed(answer)
    text = uniform(_value(answer if boxed is None else boxed))
    text = without_styles(text).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    text = FILLER.sub("", FILLER_WORD.sub("", text)).rstrip(".")
    text = SHORT_ROOT.sub(r"\\sqrt{\1}", SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text))
    return text.replace(",", "") if THOUSANDS.fullmatch(text) else text


def _value(text: str) -> str:
    """What follows the last `=` of `name = value`; all of a relation, of several equations, and of anything else."""
    name, equals, value = text.partition("=")
    if not equals or not NAME.fullmatch(name) or RELATION.search(text) or ("=" in value and "," in value):
        return text
    return value.rpartition("=")[2]


def _same(one: str, other: str) -> bool:
    if NUMBER.fullmatch(one) and NUMBER.fullmatch(other):
        return Fraction(one) == Fraction(other)
    return one == other
