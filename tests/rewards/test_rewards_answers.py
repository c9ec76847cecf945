r"""Answers as models and data sets write them: signs, units, percent, texts; for accuracy, dapo and math_verifier."""

from typing import Any

import pytest

from rewards.functions.accuracy import accuracy
from rewards.functions.dapo import dapo
from rewards.functions.math_verifier import math_verifier

HALF_PM = r"\frac{-1\pm\sqrt5}{2}"

# gold -> what is right, what is wrong
ACCURACY: dict[str, tuple[list[str], list[str]]] = {
    "18": (
        [
            r"\boxed{18\%}",
            r"$\boxed{18}\%$",
            "18 percent",
            r"\boxed{18 dollars}",
            r"\boxed{18\text{ dollars}}",
            "**18**",
        ],
        [r"\boxed{0.18}", r"\boxed{19\%}", r"\boxed{greater than 18}", r"\boxed{18\text{ or }19}", r"\boxed{1 8}"],
    ),
    r"18\%": ([r"\boxed{18}", r"\boxed{18\%}", r"\boxed{0.18}", "It is $18\\%$."], [r"\boxed{0.18\%}", r"\boxed{1.8}"]),
    "75%": ([r"\boxed{75\%}", "75", r"\boxed{\frac34}"], [r"\boxed{7.5}"]),
    r"12.5\%": (["12.5%", r"\boxed{12.5}", r"\boxed{0.125}"], [r"\boxed{12}", r"\boxed{1.25}"]),
    "0.18": ([r"\boxed{18\%}"], [r"\boxed{18}"]),
    r"\$36": ([r"\boxed{36}", r"\boxed{\$36}", "It costs $36.", r"\boxed{\$36.00}"], [r"\boxed{37}"]),
    r"\$32,\!348": ([r"\boxed{32348}", r"\boxed{\$32,348}", r"\boxed{32{,}348}"], [r"\boxed{32}", r"\boxed{348}"]),
    r"0.\overline{6}": ([r"\boxed{\frac23}", r"\boxed{0.\overline{6}}", r"\boxed{0.\bar{6}}"], [r"\boxed{0.6}"]),
    r"0.1\overline{6}": ([r"\boxed{\frac16}"], [r"\boxed{\frac{16}{99}}"]),
    HALF_PM: (
        [rf"\boxed{{{HALF_PM}}}", r"\boxed{\frac{-1+\sqrt{5}}{2}, \frac{-1-\sqrt5}{2}}"],
        [r"\boxed{\frac{-1+\sqrt{5}}{2}}", r"\boxed{\frac{1\pm\sqrt5}{2}}"],
    ),
    "42.": ([r"\boxed{42}", "42"], [r"\boxed{4.2}"]),
    "+5": ([r"\boxed{5}", "5"], [r"\boxed{-5}", r"\boxed{x}"]),
    "٥": ([r"\boxed{5}", "٥"], [r"\boxed{x}", "no idea"]),
    "-5": (["−5", r"\boxed{−5}"], [r"\boxed{5}"]),
    "4": ([r"We get \boxed{3}. So \boxed{4}."], [r"We get \boxed{4}. So \boxed{3}.", r"\boxed{3, 4}"]),
    "5,6": ([r"\boxed{5} or \boxed{6}", r"\boxed{5, 6}"], [r"\boxed{6}", r"\boxed{5} and \boxed{7}"]),
    "1234": ([r"1\,234", r"\boxed{1\,234}", r"\boxed{1,234}", r"\boxed{1{,}234}"], [r"\boxed{1, 234, 5}"]),
    "10000": (["10 000", r"\boxed{10 000}", r"\boxed{10\ 000}"], [r"\boxed{10 00}"]),
    "5000": (["5e3", r"\boxed{5e3}", r"\boxed{5 \times 10^3}", r"\boxed{5 × 10^3}"], [r"\boxed{5e2}"]),
    "3e-8": ([r"\boxed{3e-8}", r"\boxed{3 \times 10^{-8}}"], [r"\boxed{4e-8}", r"\boxed{0}"]),
    r"6.63 \times 10^{-34}": ([r"\boxed{6.63e-34}"], [r"\boxed{1.6 \times 10^{-19}}", r"\boxed{6.64e-34}"]),
    "0.001": ([r"\boxed{0.001}", r"\boxed{1/1000}"], [r"\boxed{0.0010004}"]),
    "1/300": ([r"\boxed{0.00333333}"], [r"\boxed{0.0034}"]),
    "0": ([r"\boxed{0.0}"], [r"\boxed{1e-9}"]),
    "3/2": ([r"\boxed{1 1/2}", "1 1/2", r"\boxed{1\frac12}"], [r"\boxed{1/2}", r"\boxed{11/2}"]),
    "11_2": ([r"\boxed{11_{2}}", r"\boxed{11}", "$11_2$"], [r"\boxed{11_3}", "11_3", "$11_3$"]),
    "AB": ([r"\boxed{AB}", r"\boxed{\text{AB}}"], [r"\boxed{BA}", r"\boxed{ab}"]),
    "2c": (["$2c$", r"\boxed{2c}"], [r"\boxed{2}", "$2d$"]),
    r"\frac{1}{2}ab": ([r"\boxed{\frac{ab}{2}}"], [r"\boxed{\frac12}"]),
    "10": ([r"\boxed{10 km/h}", r"\boxed{10\,\text{cm}^2}", r"\boxed{10~\mathrm{km}}"], [r"\boxed{10 or more}"]),
    "The answer is 7": ([r"\boxed{7}"], [r"\boxed{8}"]),
    # No expressions, so texts.
    r"4 \text{ (mod }7)": ([r"\boxed{4 \text{ (mod } 7)}"], [r"\boxed{4}", r"\boxed{5 \text{ (mod } 7)}"]),
    r"\text{Evelyn}": (
        [r"\boxed{\text{Evelyn}}", r"\boxed{evelyn}", "<answer>Evelyn.</answer>", "Evelyn"],
        [r"\boxed{Carla}", "It is not Evelyn", r"\boxed{Evelyn or Carla}", ""],
    ),
    r"\text{even}": (["<answer>even</answer>"], ["<answer>odd</answer>", "<answer>uneven</answer>"]),
    "hello world": (["Hello  world"], ["hello"]),
    "7 apples or 8 pears": ([], [r"\boxed{7}", r"\boxed{8}"]),
    r"\frac{1}{": ([], [r"\boxed{1}"]),
}


@pytest.mark.parametrize("gold", ACCURACY)
def test_accuracy(gold: str) -> None:
    right, wrong = ACCURACY[gold]
    scores = {said: accuracy([""], [said], answer=[gold])[0] for said in right + wrong}
    assert scores == {**dict.fromkeys(right, 1.0), **dict.fromkeys(wrong, 0.0)}


@pytest.mark.parametrize("gold", ["", " ", "$$", "$ $", r"\boxed{}", "####", r"\text{}", "."])
@pytest.mark.parametrize("completion", ["", "5", r"\boxed{x}"])
def test_an_empty_gold_is_an_error_whatever_the_completion(gold: str, completion: str) -> None:
    with pytest.raises(ValueError, match="gold answer"):
        accuracy([""], [completion], answer=[gold])


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        (r"<think>\boxed{7}", 0.0),
        ("8</think>7", 1.0),
        ("7</think>8", 0.0),
        ("<think>8</think>7<think>so", 0.0),
        ([{"role": "user", "content": r"\boxed{7}"}, {"role": "assistant", "content": "8"}], 0.0),
        ([{"role": "assistant", "content": "7"}, {"role": "tool", "content": r"\boxed{8}"}], 1.0),
        ([{"content": "7"}], 1.0),
        ([], 0.0),
    ],
)
def test_only_what_the_model_answers_counts(completion: Any, score: float) -> None:
    assert accuracy([""], [completion], answer=["7"]) == [score]


def test_messages_none_of_which_is_the_models_are_an_error() -> None:
    with pytest.raises(ValueError, match="tool, user only"):
        accuracy([""], [[{"role": "user", "content": "7"}, {"role": "tool", "content": "7"}]], answer=["7"])


@pytest.mark.parametrize(
    ("gold", "said", "score"), [(r"18\%", "18%", 1.5), (r"\text{even}", "odd", 0.5), ("$36", "36", 1.5)]
)
def test_math_verifier_as_intended_compares_like_accuracy(gold: str, said: str, score: float) -> None:
    completion = f"<think>t</think><answer>{said}</answer>"
    assert math_verifier([""], [completion], answer=[gold], mode="intended") == [score]


DAPO: dict[str, tuple[list[str], list[str]]] = {
    "x<=5": (["$x<=5$"], ["x>=5", "5"]),
    r"x \le 5": ([r"$x \le 5$"], ["5"]),
    "x!=5": (["x != 5"], ["y!=5", "5"]),
    "x=5, y=3": (["$x=5,y=3$"], ["3", "y=3"]),
    "5": (["x = 5", "$x_1 = y = 5$", "f(x) = 5"], ["x+y=5", "x>=5"]),
    "42": ([r"\(42\)", r"\[42\]", r"\( x = 42 \)", "42</answer>"], ["42x"]),
    "1000": (["1{,}000", r"1\,000"], ["1"]),
    "90": (["90°", r"$90^\circ$", r"90^{\circ}"], ["9"]),
    "-5": (["−5"], ["5"]),
    r"18\%": (["18", r"18\%", "18%"], ["0.18"]),
    r"0.\overline{6}": ([r"0.\overline{6}"], ["0.6"]),
    "(1,2)": (["f(x) = (1,2)", r"\left(1, 2\right)"], ["2"]),
    r"\text{Evelyn}": (["Evelyn"], ["evelyn's"]),
}


@pytest.mark.parametrize("gold", DAPO)
def test_dapo(gold: str) -> None:
    right, wrong = DAPO[gold]
    scored = {said: dapo([""], [f"Answer: {said}"], answer=[gold])[0] for said in right + wrong}
    got = {said: found and found["acc"] for said, found in scored.items()}
    assert got == {**dict.fromkeys(right, 1.0), **dict.fromkeys(wrong, 0.0)}
