import threading
from typing import Any

import pytest

from rewards.functions import accuracy as accuracy_module
from rewards.functions.accuracy import accuracy
from rewards.functions.exact_match import exact_match
from rewards.functions.format import format as format_reward
from rewards.functions.text import answer_part, last_boxed, last_tagged, text_of

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
    ("7", "<think>surely 7</think>", 0.0),
    ("7", "<think>surely 7</think> I do not know.", 0.0),
    ("7", r"<think>\boxed{7}</think> It is \boxed{8}.", 0.0),
    ("7", r"<think>\boxed{8}</think> It is $\boxed{7}$.", 1.0),
    ("7", "<think><answer>7</answer></think>It is 8.", 0.0),
    ("7", "<think>8</think><think>9</think>7", 1.0),
    ("7", "<answer>8</answer> no, <answer>7</answer>", 1.0),
    ("7", "<answer>8 <answer>7</answer>", 1.0),
    ("7", r"$x = \boxed{7}$", 1.0),
    ("7", r"$\boxed{8}$, no: $\boxed{7}$", 1.0),
    ("1/2", "<answer>0.5</answer>", 1.0),
    ("2", "", 0.0),
    ("2", "I do not know", 0.0),
    ("2", r"\boxed{", 0.0),
]


@pytest.mark.parametrize(("gold", "completion", "score"), ACCURACY)
def test_accuracy(gold: Any, completion: str, score: float) -> None:
    assert accuracy(["q"], [completion], answer=[gold]) == [score]


def test_accuracy_in_a_thread_is_the_same() -> None:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(accuracy(["", ""], [r"\boxed{2}", r"\boxed{3}"], ["2", "2"])))
    thread.start()
    thread.join(20)
    assert got == [[1.0, 0.0]]


BEFORE = ["", "So ", "so it is: ", "we get $5$, ", "cost $4, ", "$$y$$ ", "\\(x\\) ", "final answer is $3$. I hope "]
BOX = ["", "$", "$$", "$ ", "\\(", "{"]
AFTER = ["", "$", "$$", ".", "$.", "\\%", "%", " percent", " apples", "\\)", "$ and $5$", "^2"]


def test_a_boxed_integer_needs_no_algebra_and_is_graded_as_with_it() -> None:
    texts = [f"{b}{o}\\boxed{{{n}}}{a}".strip() for b in BEFORE for o in BOX for a in AFTER for n in ("-4", "04")]
    accuracy_module._graded.cache_clear()
    for text in texts:
        for gold in ("4", "-4", "5"):
            got = accuracy_module.equal(gold, text, alone=False)
            assert (
                accuracy_module._grade(gold, text, False)
                == got
                == (int(gold) == int(text.split("{")[-1].split("}")[0]))
            )
    assert accuracy_module._graded.cache_info().currsize == 0


def test_a_grade_is_remembered_by_gold_and_answer() -> None:
    completions = [f"<think>{i}</think><answer>x+{i % 2 + 1}</answer>" for i in range(8)]
    accuracy_module._graded.cache_clear()
    assert accuracy([""] * 8, completions, answer=["1+x"] * 4 + ["2+x"] * 4) == [1.0, 0.0] * 2 + [0.0, 1.0] * 2
    found = accuracy_module._graded.cache_info()
    assert (found.hits, found.misses) == (4, 4)
    assert accuracy([""], ["x " * 5000 + r"\boxed{1+x}"], answer=["x+1"]) == [1.0]
    assert accuracy_module._graded.cache_info().currsize == 4


def test_null_gold_is_not_mine() -> None:
    assert accuracy(["q"], ["1"], answer=[None]) == [None]
    assert exact_match(["q"], ["1"], answer=[None]) == [None]


def test_exact_match_and_format() -> None:
    assert exact_match([""] * 3, [" a\n", "A", "1"], answer=["a", "a", 1]) == [1.0, 0.0, 1.0]
    good = "<think>a\nb</think>\n<answer>4</answer>"
    assert format_reward([""] * 2, [good, "x" + good]) == [1.0, 0.0]
    assert format_reward([""], [f"\n {good} "]) == [1.0]


@pytest.mark.parametrize(
    "almost",
    [
        "<think>a</think> b <answer>4</answer>",
        "<think></answer>",
        "<think></think><answer>",
        "<think>a</think><answer>4</answer>.",
        "<think></think><answer></answer>",
        "<think> </think><answer>4</answer>",
        "<think>a</think><answer>\n</answer>",
        "<think>a</think><answer>1</answer> lots of text </answer>",
        "<think>a</think> junk <answer>x</answer></think><answer>2</answer>",
        "<think>a</think></think><answer>4</answer>",
        "<think>a<think>b</think><answer>4</answer>",
        "<answer>4</answer><think>a</think>",
    ],
)
def test_what_is_not_the_format(almost: str) -> None:
    assert format_reward([""], [almost]) == [0.0]


def test_text_of() -> None:
    assert text_of([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": None}]) == "a\n"
    assert text_of([{"role": "assistant", "content": [{"type": "text", "text": "b"}]}]) == "b"
    with pytest.raises(ValueError, match="NoneType"):
        text_of(None)  # type: ignore[arg-type]
    assert accuracy(["q"], [[{"role": "assistant", "content": r"\boxed{2}"}]], answer=["2"]) == [1.0]


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}} }", r"\frac{1}{2}"),
        (r"\boxed{}", ""),
        (r"\boxed{1", None),
        ("1", None),
    ],
)
def test_last_boxed(text: str, inside: str | None) -> None:
    assert last_boxed(text) == inside


def test_parts_of_a_completion() -> None:
    assert last_tagged("<a>1</a><a>2</a></a>", "a") == "2"
    assert last_tagged("</a><a>", "a") is None
    assert answer_part("<think> <answer>1</answer> </think>\n 2 ") == "2"
