"""The rewards that keep the contract of another project's reward server, value for value."""

from typing import Any

import pytest

from rewards.functions.example_coding import example_coding
from rewards.functions.example_math import example_math
from rewards.functions.example_safety import example_safety
from rewards.functions.math_verifier import math_verifier


def tagged(answer: str) -> str:
    return f"<think>t</think><answer>{answer}</answer>"


NEWLINE_BETWEEN = "<think>t</think>\n<answer>\\boxed{2}</answer>"
TWO_ANSWERS = tagged(r"\boxed{2}</answer><answer>\boxed{3}")

# number of the case, gold, completion, strict, intended
CASES: list[tuple[str, Any, str, float, float]] = [
    ("1", "2", tagged(r"\boxed{2}"), 1.5, 1.5),
    ("2", "2", tagged(r"\boxed{3}"), 0.5, 0.5),
    ("3", "2", tagged("$2$"), 0.5, 1.5),
    ("4", "2", tagged("The answer is $2$"), 1.5, 1.5),
    ("5", "2", r"<answer>\boxed{2}</answer>", 1.0, 0.0),
    ("6", "2", NEWLINE_BETWEEN, 1.0, 1.5),
    ("7a", "2", r"\boxed{2}", 0.0, 0.0),
    ("7b", "2", "", 0.0, 0.0),
    ("8a", r"\frac{1}{2}", tagged(r"\boxed{0.5}"), 1.5, 1.5),
    ("8b", r"\frac{1}{2}", tagged(r"\boxed{\frac{2}{4}}"), 1.5, 1.5),
    ("9", "2", TWO_ANSWERS, 1.0, 0.0),
    ("trailing space", "2", tagged(r"\boxed{2}") + " ", 1.0, 1.5),
    ("text between", "2", r"<think>t</think>so<answer>\boxed{2}</answer>", 1.0, 0.0),
    ("two thoughts", "2", r"<think>t<think>t</think><answer>\boxed{2}</answer>", 1.0, 0.0),
    ("empty tags", "2", "<think></think><answer></answer>", 0.5, 0.0),
    ("padded", "2", tagged(" $2$ "), 0.5, 1.5),
    ("dollars in the gold", "$2$", tagged(r"\boxed{2}"), 1.5, 1.5),
    ("integer gold", 2, tagged(r"\boxed{2}"), 1.5, 1.5),
    ("never closed", "2", r"<think>t</think><answer>\boxed{2}", 0.0, 0.0),
    ("only closed", "2", r"</answer>\boxed{2}<answer>", 0.0, 0.0),
]


@pytest.mark.parametrize(
    ("gold", "completion", "strict", "intended"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_math_verifier(gold: Any, completion: str, strict: float, intended: float) -> None:
    assert math_verifier([""], [completion], answer=[gold]) == [strict]
    assert math_verifier([""], [completion], answer=[gold], mode="intended") == [intended]


def test_case_8_keeps_the_order_of_a_batch() -> None:
    completions = [tagged(r"\boxed{0.5}"), tagged(r"\boxed{2}"), tagged(r"\boxed{\frac{2}{4}}")]
    assert math_verifier([""] * 3, completions, answer=[r"\frac{1}{2}"] * 3) == [1.5, 0.5, 1.5]


@pytest.mark.parametrize("said", [r"\boxed{7}", "", "no idea"])
def test_case_10_an_unparseable_gold_is_free_in_strict_mode_only(said: str) -> None:
    assert math_verifier([""], [tagged(said)], answer=["$five"]) == [1.5]
    assert math_verifier([""], [tagged(said)], answer=["$five"], mode="intended") == [0.5 if said else 0.0]


def test_case_10_a_price_is_a_number_where_the_gold_is_read_as_intended() -> None:
    assert math_verifier([""], [tagged(r"\boxed{7}")], answer=["$5"]) == [1.5]
    assert math_verifier([""] * 2, [tagged(r"\boxed{7}"), tagged("5")], ["$5"] * 2, mode="intended") == [0.5, 1.5]


def test_case_11_other_columns_do_not_count() -> None:
    got = math_verifier([""], [tagged(r"\boxed{2}")], answer=["2"], golden_responses=["$77$"], level=[3])
    assert got == [1.5]


@pytest.mark.parametrize("mode", ["strict", "intended"])
def test_a_gold_that_is_null_or_blank(mode: str) -> None:
    assert math_verifier([""], [tagged("2")], answer=[None], mode=mode) == [None]
    with pytest.raises(ValueError, match="blank"):
        math_verifier([""], [tagged("2")], answer=["  "], mode=mode)


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ValueError, match="'lenient'"):
        math_verifier([""], [tagged("2")], answer=["2"], mode="lenient")


CASE_14 = ["1+1=2", "def f():\n    return 1", "import os", "violence Harm"]


@pytest.mark.parametrize(
    ("function", "scores"),
    [
        (example_math, [0.8, 0.2, 0.2, 0.2]),
        (example_coding, [0.3, 0.9, 0.6, 0.3]),
        (example_safety, [1.0, 1.0, 1.0, 0.2]),
    ],
)
def test_case_14(function: Any, scores: list[float]) -> None:
    assert function([""] * 4, CASE_14) == scores


def test_the_toys_look_at_parts_of_words() -> None:
    assert example_coding([""], ["the gif is\there"]) == [0.9]
    assert example_safety([""] * 3, ["harmless", "Harm", ""]) == [0.2, 1.0, 1.0]
    assert example_math([""] * 3, ["7", "a-b", "٣ = ٣"]) == [0.2, 0.2, 0.8]
