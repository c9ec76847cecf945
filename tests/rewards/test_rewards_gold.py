import json
import time
from pathlib import Path
from typing import Any

import pytest

from rewards.serving.gold import GoldError, GoldSet, NoGoldError, load_gold


def written(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) if path.suffix == ".jsonl" else json.dumps(rows))
    return path


def load(path: Path, rows: list[Any], threshold: float = 0.9, **keys: str | None) -> GoldSet:
    return load_gold(written(path, rows), keys.get("question"), keys.get("answer"), threshold)


@pytest.mark.parametrize("name", ["g.jsonl", "g.json"])
def test_keys_are_found_or_named(tmp_path: Path, name: str) -> None:
    for keys in (("question", "answer"), ("prompt", "solution"), ("problem", "ground_truth")):
        golds = load(tmp_path / name, [dict(zip(keys, ("q", "a"), strict=True))])
        assert golds.find("q").answer == "a"
    rows = [{"q": "1?", "a": "x", "answer": "y"}]
    assert load(tmp_path / name, rows, question="q", answer="a").find("1?").answer == "x"
    with pytest.raises(GoldError, match=r"no question or prompt or problem.*--gold-question"):
        load(tmp_path / name, rows)


def test_numbers_keep_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    path.write_text('{"question": "a?", "answer": 72.50}\n\n{"question": "b?", "answer": 12345678901234567890123}\n')
    golds = load_gold(path, None, None, 0.9)
    assert [(g.row, g.answer) for g in golds.rows] == [(1, "72.50"), (3, "12345678901234567890123")]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"question": "q", "answer": "1"}, {"question": "q", "answer": "2"}], "different answers in rows 1, 2"),
        ([{"question": "q", "answer": "1"}, {"question": "r", "answer": " "}], "blank or no text or number in row 2"),
        ([{"question": "q", "answer": "1"}, {"question": "r", "answer": ["1"]}], "row 2"),
        ([{"question": "q", "answer": True}], "row 1"),
        ([{"question": "q", "answer": "1"}, {"question": "r"}], "row 2"),
        ([{"question": "", "answer": "1"}], "row 1"),
        ([["q", "a"]], "row 1 is a list"),
        ([], "no rows"),
    ],
)
@pytest.mark.parametrize("name", ["g.jsonl", "g.json"])
def test_a_bad_file_is_refused_with_its_rows(tmp_path: Path, name: str, rows: list[Any], words: str) -> None:
    with pytest.raises(GoldError, match=words):
        load(tmp_path / name, rows)


def test_a_file_that_is_no_data(tmp_path: Path) -> None:
    for name, content, words in (
        ("g.jsonl", b'{"question": "secret"\n', "line 1 is not JSON"),
        ("g.json", b"\xff", "not UTF-8"),
        ("g.csv", b"a,b", "expected a .jsonl or a .json"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(GoldError, match=words) as caught:
            load_gold(path, None, None, 0.9)
        assert "secret" not in str(caught.value)
    with pytest.raises(GoldError, match="cannot be read"):
        load_gold(tmp_path / "gone.jsonl", None, None, 0.9)
    for threshold in (0.0, 1.1, float("nan")):
        with pytest.raises(GoldError, match="--gold-threshold"):
            load_gold(tmp_path / "g.csv", None, None, threshold)


def test_a_repeated_row_is_no_conflict(tmp_path: Path) -> None:
    rows = [{"question": "why", "answer": "1"}] * 2 + [{"question": " Why ", "answer": "2"}]
    golds = load(tmp_path / "g.jsonl", rows)
    assert (golds.find("why").answer, golds.find(" Why ").answer) == ("1", "2")
    with pytest.raises(NoGoldError, match="rows 1, 3 of the gold file are equally like it"):
        golds.find("why  ")


SAME = [
    ("What is 1+1?", " What  is\n1 + 1 ?!"),
    ("What is 1+1?", "what is １＋１？"),
    ("What is 1+1?", "Wat is 1+1?"),
    ("What is 1+1?", "hat is 1+1"),
    ("What is 1+1?", "Whatt is 1+1?"),
    ("Price?", "Pric?"),
    ("Find f(3) if f(x) = x - 2", "Find f(3) if f(x)= x-2."),
    ("Don't you know, Tom?", "Do n't you know , Tom ?"),
    ("I don't know.", "I do n't know ."),
    ("Half of Café (large)?", "half of Café (lage)?"),
    ("Tom has 3 apples, and gives one away.", "Tom has 3 aples, and giives one away."),
]


@pytest.mark.parametrize(("row", "asked"), SAME)
def test_what_cannot_change_a_question_is_forgiven(tmp_path: Path, row: str, asked: str) -> None:
    golds = load(tmp_path / "g.jsonl", [{"question": row, "answer": "2"}, {"question": "Other?", "answer": "3"}])
    assert golds.find(asked).answer == "2"
    assert golds.find(asked).row == 1  # remembered


OTHERS = [
    ("What is -3 + 5?", "What is 3 + 5?"),
    *(("What is 7 - 2?", f"What is {other}?") for other in ("7 × 2", "7÷2", "7 · 2", "-7 - 2", "7 2", "7 -2", "72")),
    ("What is 0.5 times 30?", "What is -0.5 times 30?"),
    ("What is 0.5 times 30?", "What is 05 times 30?"),
    ("Compute 5² + 1.", "Compute 52 + 1."),
    ("Compute ½ of 4.", "Compute 1⁄2 of 4."),
    ("Solve for x: 2x + y = 7", "Solve for y: 2x + y = 7"),
    ("Solve for x: 2x + y = 7", "Solve for X: 2x + y = 7"),
    ("What is √16 × 2?", "What is 16 × 2?"),
    ("What is 3! + 2?", "What is 3 + 2?"),
    ("What is 5!", "What is 5"),
    ("Add 1, 2, 3, ...", "Add 1, 2, 3"),
    ("Add 1,234", "Add 1, 234"),
    ("Evaluate exactly: 2 * (3 + 4)", "Evaluate exactly: (2 * 3) + 4"),
    *(("Is x ≤ 3?", f"Is x {sign} 3?") for sign in ("≥", "<", "=", "≠")),
    (
        "What is the largest prime in this long list of many numbers?",
        "What is the smallest prime in this long list of many numbers?",
    ),
    (
        "How many even numbers are there from 1 to 100 in total?",
        "How many odd numbers are there from 1 to 100 in total?",
    ),
    ("How many even numbers are there in total?", "How many seven numbers are there in total?"),
    ("Evaluate sin(30) + 1 in degrees", "Evaluate cos(30) + 1 in degrees"),
    ("Give the sinh of this value", "Give the sin of this value"),
    ("She has one million dollars", "She has one billion dollars"),
    ("Is 17 prime? Answer yes or no.", "Is 17 prime? Answer no or yes."),
    ("Is the ratio rational?", "Is the ratio irrational?"),
    ("Draw a symmetric figure", "Draw an asymmetric figure"),
    ("Draw the typical figure", "Draw the atypical figure"),
    ("What is the capital of Ireland?", "What is the capital of Iceland?"),
    ("What is the mass of propane?", "What is the mass of propene?"),
    ("Is A \\subset B?", "Is A \\supset B?"),
    ("求函数的最大值", "求函数的最小值"),
    ("How long is 5 mm?", "How long is 5 Mm?"),
    ("Tom bought 3, sold 4", "Tom sold 3, bought 4"),
    ("Hello there, friend", "Hello there friend"),
]


@pytest.mark.parametrize(("row", "asked"), OTHERS)
def test_another_question_gets_no_gold(tmp_path: Path, row: str, asked: str) -> None:
    for question, other in ((row, asked), (asked, row)):
        golds = load(tmp_path / "g.jsonl", [{"question": question, "answer": "2"}], threshold=0.5)
        assert golds.find(question).answer == "2"
        with pytest.raises(NoGoldError):
            golds.find(other)


def test_a_word_of_the_file_is_no_slip(tmp_path: Path) -> None:
    rows = [{"question": "Give the price of it", "answer": "1"}, {"question": "Who won the prize?", "answer": "2"}]
    golds = load(tmp_path / "g.jsonl", rows)
    assert golds.find("Give the pricee of it").answer == "1"
    with pytest.raises(NoGoldError, match="no question in the gold file is the same"):
        golds.find("Give the prize of it")


def test_slips_that_fit_two_questions_choose_neither(tmp_path: Path) -> None:
    rows = [{"question": f"Give the {word} of it", "answer": word} for word in ("price", "prize")]
    with pytest.raises(NoGoldError, match=r"rows \d, \d of the gold file are equally like it"):
        load(tmp_path / "g.jsonl", rows).find("Give the prike of it")


def test_the_threshold_limits_slips(tmp_path: Path) -> None:
    rows = [{"question": "Short question", "answer": "s"}]
    one, two = "Short qestion", "Shrt qestion"
    assert load(tmp_path / "g.jsonl", rows).find(one).answer == "s"
    assert load(tmp_path / "g.jsonl", rows, threshold=0.8).find(two).answer == "s"
    for threshold, asked in ((0.9, two), (1.0, one)):
        with pytest.raises(NoGoldError):
            load(tmp_path / "g.jsonl", rows, threshold=threshold).find(asked)
    assert load(tmp_path / "g.jsonl", rows, threshold=1.0).find("short  question.").answer == "s"


def test_unknown_questions_cost_little(tmp_path: Path) -> None:
    """Also where all rows have the same form, and for an endless prompt."""
    letters = "abcdefghij"
    names = ["".join(letters[int(digit)] for digit in f"{i:05d}") for i in range(4000)]
    rows = [{"question": f"who likes {name} more than nobody in the whole town", "answer": name} for name in names]
    golds = load(tmp_path / "g.jsonl", rows)
    began = time.monotonic()
    for i in range(100):
        with pytest.raises(NoGoldError):
            golds.find(f"who hates zzzz{letters[i % 10]} more than nobody in the whole town")
    for endless in ("word " * 200_000, "?" * 500_000 + "x", "( " * 200_000, "a" * 500_000, "1 + " * 200_000):
        with pytest.raises(NoGoldError):
            golds.find(endless)
    assert time.monotonic() - began < 2.0
