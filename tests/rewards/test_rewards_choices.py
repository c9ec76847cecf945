r"""multiple_choice: hedges are no choice, and the ways in which models write one choice."""

from typing import Any

import pytest

from rewards.functions.multiple_choice import multiple_choice

CHOICES = ["Paris", "London", "Vitamin C", "Rome"]
BLOOD = ["B", "A", "AB", "O"]


def score(completion: str, gold: Any = "B", choices: list[str] | None = CHOICES) -> float | None:
    return multiple_choice([""], [completion], answer=[gold], choices=None if choices is None else [choices])[0]


HEDGES = [
    "(B) or (C)",
    "**B** or **C**",
    "B; C",
    "B C",
    "B | C",
    "B (or C)",
    "B) A) C) D)",
    "B, or maybe C",
    "B. C. D. A",
]
HEDGES += [
    "B) or C)",
    "b) or c)",
    "(b) or (c)",
    "b or c",
    "A or B",
    "B, C",
    "B as well as C",
    r"\text{B or C}",
    "not B",
]


@pytest.mark.parametrize("choices", [CHOICES, None])
@pytest.mark.parametrize("hedge", HEDGES)
def test_two_letters_are_no_choice(hedge: str, choices: list[str] | None) -> None:
    for text in (f"Answer: {hedge}", f"<answer>{hedge}</answer>", rf"\boxed{{{hedge}}}", f"So:\n{hedge}"):
        assert (text, score(text, choices=choices)) == (text, 0.0)


@pytest.mark.parametrize(
    "said", ["B) Rome or London", "B) London, A) Paris", "B) London or Rome", "London or Rome", "B) Rome"]
)
def test_a_letter_beside_another_choices_text_is_no_choice(said: str) -> None:
    for text in (said, f"Answer: {said}", f"<answer>{said}</answer>"):
        assert (text, score(text)) == (text, 0.0)


ONE = [
    "**Answer:**\n\nB",
    "Answer:\nB",
    r"\boxed{\textbf{(B)}\ London}",
    r"\boxed{\text{(B) London}}",
    r"\boxed{\textbf{\text{B}}}",
    r"The answer is \(B\).",
    r"The answer is $\textbf{(B)}$",
    "<answer>B - London</answer>",
    "<answer>\nB\n</answer>",
    "B is correct.",
    "Option B is correct.",
    "(B) is the correct answer",
    "Answer: [B]",
    "Answer: `B`",
    "Answer: B, not A",
    "The answer is B. A is wrong",
]


@pytest.mark.parametrize("choices", [CHOICES, None])
@pytest.mark.parametrize("completion", ONE)
def test_one_letter(completion: str, choices: list[str] | None) -> None:
    assert score(completion, choices=choices) == 1.0


@pytest.mark.parametrize(
    "completion", [r"\boxed{\text{London}}", "The answer is London (B).", "B) London because not Rome"]
)
def test_a_choice_with_its_text(completion: str) -> None:
    assert score(completion) == 1.0


def test_a_text_that_is_a_number() -> None:
    numbers = ["1", "7", "3", "17"]
    assert score(r"\boxed{\textbf{(B) }7}", choices=numbers) == score(r"\boxed{\textbf{(B) }7}", choices=None) == 1.0
    assert score(r"\boxed{\textbf{(B) }3}", choices=numbers) == 0.0


def test_what_is_a_letter_and_a_text_is_the_letter() -> None:
    said = {"B": "B", "A": "A", "AB": "C", "O": "D", "B) A": "B", "A) B": "A", "Answer: AB": "C"}
    assert {text: [gold for gold in "ABCD" if score(text, gold, BLOOD)] for text in said} == {
        text: [letter] for text, letter in said.items()
    }
    assert score("C", "AB", BLOOD) == 1.0


def test_a_gold_that_is_a_letter_with_its_text() -> None:
    assert score("B", "B) London") == score("B", "(B) London") == score("B", "B) London", None) == 1.0
    with pytest.raises(ValueError, match="names no choice"):
        score("B", "B) Rome")
