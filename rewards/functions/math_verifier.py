r"""Half a point for the form, one point for the right answer: 0.5 * format + accuracy, judged by math-verify.

The form is `<think>...</think><answer>...</answer>`, with each opening tag once. `mode: strict` gives the values of
Align-Anything's code: nothing may stand before, between or after the tags; the answer counts without the form too; in
it only a `\boxed{}` or a phrase such as "The answer is $2$" is found, a bare `$2$` is not; and **a gold answer that
cannot be parsed makes every tagged answer right**. `mode: intended` does what its README says: white space around the
tags is allowed, the answer counts only in the right form (that of `format`), and answer and gold are compared as in
`accuracy`: bare `$2$` and plain `2` are answers, and a gold answer that is no expression is compared as a text.
math-verify's time limits are off; the worker that calls us holds the limit.

Range: 0.0, 0.5, 1.0 or 1.5; intended: 0.0, 0.5 or 1.5.
Source: the reward of this name of Align-Anything's remote reward server.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from latex2sympy2_extended import NormalizationConfig  # type: ignore[import-untyped]
from math_verify import LatexExtractionConfig, parse, verify

from rewards.batch import Text
from rewards.contract import Example, PrepareError, short_repr
from rewards.functions.accuracy import equal
from rewards.functions.format import has_form
from rewards.functions.text import gold_text, last_tagged, text_of

MODES = ("strict", "intended")
LONGEST_KEPT = 4_000  # characters of an answer that is remembered with what was parsed from it
GOLD = LatexExtractionConfig()
PREDICTION = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        nits=False, malformed_operators=False, basic_latex=True, equations=True, boxed="all", units=True
    ),
    boxed_match_priority=0,
    try_extract_without_anchor=False,
)

PER_SAMPLE = True
SELF_TEST = (
    Example(completion=r"<think>1+1</think><answer>\boxed{2}</answer>", columns={"answer": "2"}, score=1.5),
    Example(completion=r"<think>1+1</think><answer>\boxed{3}</answer>", columns={"answer": "2"}, score=0.5),
)


def prepare(*, mode: str = "strict") -> None:
    """Raises PrepareError for an unknown mode."""
    try:
        _check(mode)
    except ValueError as error:
        raise PrepareError(str(error)) from error


def math_verifier(
    prompts: Sequence[Text], completions: Sequence[Text], answer: Sequence[Any], *, mode: str = "strict", **kwargs: Any
) -> list[float | None]:
    """0.0 to 1.5; None where `answer` is null. Raises ValueError for a blank gold, or an unknown mode."""
    _check(mode)
    score = _strict if mode == "strict" else _intended
    return [
        None if gold is None else score(text_of(completion), _gold_text(gold))
        for completion, gold in zip(completions, answer, strict=True)
    ]


def _check(mode: object) -> None:
    if mode not in MODES:
        raise ValueError(f"params.mode must be one of {MODES}, not {mode!r}")


def _gold_text(gold: object) -> str:
    text = gold_text(gold)
    if not text:
        raise ValueError(f"the gold answer {short_repr(gold)} is blank")
    return text


def _tagged_once(text: str) -> bool:
    return text.count("<think>") == 1 and text.count("<answer>") == 1


def _intended(completion: str, gold: str) -> float:
    right = equal(gold, (last_tagged(completion) or "").strip(), alone=True)  # first: a bad gold is always an error
    return (0.5 + right) if has_form(completion.strip()) else 0.0


def _strict(completion: str, gold: str) -> float:
    ends = completion.startswith("<think>") and completion.endswith("</answer>")
    formed = ends and "</think><answer>" in completion and _tagged_once(completion)
    return 0.5 * formed + _strict_accuracy(completion, gold)


def _strict_accuracy(completion: str, gold: str) -> float:
    start, closing = completion.find("<answer>"), completion.rfind("</answer>")
    if start < 0 or closing < start:
        return 0.0
    start += len("<answer>")
    said = completion[start : completion.index("</answer>", start)].strip()
    wanted = _parse_gold(gold if gold.startswith("$") else f"${gold}$")
    if not wanted:
        return 1.0
    found = _parse_kept(said) if len(said) <= LONGEST_KEPT else _parse_prediction(said)
    # Theirs puts the prediction first, where math-verify expects the gold; kept, for it can change a verdict.
    return float(verify(list(found), list(wanted), timeout_seconds=None))


@lru_cache(maxsize=4096)
def _parse_gold(gold: str) -> tuple[Any, ...]:
    return tuple(parse(gold, [GOLD], extraction_mode="first_match", parsing_timeout=None))


def _parse_prediction(said: str) -> tuple[Any, ...]:
    return tuple(parse(said, [PREDICTION], extraction_mode="first_match", parsing_timeout=None))


_parse_kept = lru_cache(maxsize=4096)(_parse_prediction)
