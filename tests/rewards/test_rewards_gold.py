import json
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
    rows = [{"question": "q", "answer": "1"}] * 2 + [{"question": " Q ", "answer": "2"}]
    golds = load(tmp_path / "g.jsonl", rows)
    assert (golds.find("q").answer, golds.find(" Q ").answer) == ("1", "2")
    with pytest.raises(NoGoldError, match="rows 1, 3 of the gold file are equally like it"):
        golds.find("q  ")


def test_similar_questions(tmp_path: Path) -> None:
    rows = [
        {"question": f"Tom has {n} apples and gives one away. How many are left?", "answer": str(n - 1)} for n in (3, 4)
    ]
    golds = load(tmp_path / "g.jsonl", [*rows, {"question": "Short", "answer": "s"}])
    asked = "Tom has 4 apples and gives one away; how many are left"
    assert golds.find(asked).answer == "3"
    assert golds.find(asked).row == 2  # remembered
    assert golds.find("Shirt").answer == "s"  # one edit, though the ratio is 0.8
    with pytest.raises(NoGoldError, match="has other numbers"):
        golds.find(rows[0]["question"].replace("3", "5"))
    with pytest.raises(NoGoldError, match=r"best similarity 0\.\d+"):
        golds.find("Who wrote Faust?")
    with pytest.raises(NoGoldError, match=r"best similarity below 0\.3"):
        golds.find("word " * 1_000_000)
    with pytest.raises(NoGoldError, match=r"best similarity 0\.\d+, below --gold-threshold 1"):
        load(tmp_path / "h.jsonl", rows, threshold=1.0).find(asked)
