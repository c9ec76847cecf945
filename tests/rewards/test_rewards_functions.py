import threading
from typing import Any

import pytest

from rewards.functions.accuracy import accuracy
from rewards.functions.exact_match import exact_match
from rewards.functions.format import format as format_reward
from rewards.functions.text import text_of

# gold, completion, score
ACCURACY: list[tuple[Any, str, float]] = [
    ("42", "42", 1.0),
    ("42", "43", 0.0),
    (42, "The answer is 42.", 1.0),
    (0.5, r"\boxed{\frac{1}{2}}", 1.0),
    ("42", r"first 41, then \boxed{42}", 1.0),
    ("42", r"42 is near, but \boxed{41}", 0.0),
    (r"\frac{1}{2}", r"so $\boxed{0.5}$", 1.0),
    (r"$\frac{1}{2}$", r"\boxed{\frac{2}{4}}", 1.0),
    ("1/3", r"\boxed{\frac{1}{3}}", 1.0),
    ("1/3", r"\boxed{0.3}", 0.0),
    ("1,234", r"\boxed{1234}", 1.0),
    ("1e5", r"\boxed{100000}", 1.0),
    ("-3", "-3", 1.0),
    ("-3", "3", 0.0),
    ("007", "7", 1.0),
    (r"\sqrt{2}", r"\boxed{\sqrt{2}}", 1.0),
    (r"2\pi", r"\boxed{2}", 0.0),
    ("x+1", r"\boxed{1+x}", 1.0),
    ("(1,2)", r"\boxed{(1,2)}", 1.0),
    ("3 apples", r"\boxed{3}", 1.0),
    ("$5", r"\boxed{5}", 1.0),
    ("He had 3, she 4. #### 7", r"\boxed{7}", 1.0),
    ("7", "<think>maybe 8</think><answer> 7 </answer>", 1.0),
    ("7", "<think>surely 7</think><answer>8</answer>", 0.0),
    ("x+1", "<think>.</think> <answer>1+x</answer>", 1.0),
    ("2", "<think>t</think><answer> $2$ </answer>", 1.0),
    ("2", "<answer>The answer is $2$</answer>", 1.0),
    ("2", "", 0.0),
    ("2", "I do not know", 0.0),
    ("2", r"\boxed{", 0.0),
]


@pytest.mark.parametrize(("gold", "completion", "score"), ACCURACY)
def test_accuracy(gold: Any, completion: str, score: float) -> None:
    assert accuracy(["q"], [completion], answer=[gold]) == [score]


@pytest.mark.parametrize("gold", ["hello world", "", "   ", r"$\frac{1}{$", "7 apples or 8 pears", "$$", "None"])
def test_an_unparseable_gold_is_an_error(gold: str) -> None:
    with pytest.raises(ValueError, match="gold answer"):
        accuracy(["q"], [r"\boxed{2}"], answer=[gold])


def test_accuracy_in_a_thread_is_the_same() -> None:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(accuracy(["", ""], [r"\boxed{2}", r"\boxed{3}"], ["2", "2"])))
    thread.start()
    thread.join(20)
    assert got == [[1.0, 0.0]]


def test_null_gold_is_not_mine() -> None:
    assert accuracy(["q"], ["1"], answer=[None]) == [None]
    assert exact_match(["q"], ["1"], answer=[None]) == [None]


def test_exact_match_and_format() -> None:
    assert exact_match([""] * 3, [" a\n", "A", "1"], answer=["a", "a", 1]) == [1.0, 0.0, 1.0]
    good = "<think>a\nb</think>\n<answer>4</answer>"
    assert format_reward([""] * 2, [good, "x" + good]) == [1.0, 0.0]
    assert format_reward([""] * 2, ["ab", "abc"], pattern="a.") == [1.0, 0.0]


def test_text_of() -> None:
    assert text_of([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": None}]) == "a\n"
    assert text_of([{"role": "assistant", "content": [{"type": "text", "text": "b"}]}]) == "b"
    with pytest.raises(ValueError, match="NoneType"):
        text_of(None)  # type: ignore[arg-type]
    assert accuracy(["q"], [[{"role": "assistant", "content": r"\boxed{2}"}]], answer=["2"]) == [1.0]
