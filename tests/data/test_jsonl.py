from pathlib import Path

import pytest

from orchestrator.data import DataError, load_rows

GOOD = '{"prompt": "a", "answer": "1"}\n'

BROKEN = {
    "bad_json": (GOOD + '{"prompt": \n', r"rows\.jsonl:2: not JSON"),
    "not_utf8": (GOOD + '{"prompt": "\udcff", "answer": "1"}\n', r"rows\.jsonl:2: not JSON"),
    "not_an_object": (GOOD + "[1]\n", r"rows\.jsonl:2: a JSON list"),
    "missing_prompt": ('{"promt": "a"}\n', r"rows\.jsonl:1: data\.prompt = 'prompt'.*did you mean 'promt'"),
    "fewer_columns": (GOOD + '{"prompt": "b"}\n', r"rows\.jsonl:2: .*line 1 has .*missing \['answer'\]"),
    "more_columns": (GOOD + '\n{"prompt": "b", "answer": "1", "x": 1}\n', r"rows\.jsonl:3: .*extra \['x'\]"),
    "other_kind": (
        GOOD + '{"prompt": "b", "answer": 1}\n',
        r"rows\.jsonl:2: column 'answer' is a number.*string on line 1",
    ),
    "empty_file": ("\n\n", r"rows\.jsonl: no rows in it"),
    "empty_prompt": ('{"prompt": ""}\n', r"rows\.jsonl:1: prompt column 'prompt' is ''"),
    "bad_message": ('{"prompt": [{"role": "user"}]}\n', r"rows\.jsonl:1: .*message \{'role': 'user'\}"),
}


def write(folder: Path, text: str) -> Path:
    path = folder / "rows.jsonl"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    text, message = BROKEN[name]
    with pytest.raises(DataError, match=message):
        load_rows("jsonl", split="train", rows=None, seed=0, path=write(tmp_path, text))


def test_rows_keep_the_order_of_the_file_and_are_renamed(tmp_path: Path) -> None:
    path = write(tmp_path, '\ufeff{"q": "a", "gold": "1", "level": 2}\n\n{"q": "b", "gold": null, "level": 3}\n')
    rows = load_rows("jsonl", split="train", rows=None, seed=0, path=path, prompt="q", columns={"answer": "gold"})
    assert rows == [{"prompt": "a", "answer": "1", "level": 2}, {"prompt": "b", "answer": None, "level": 3}]


def test_a_renamed_column_never_hides_another(tmp_path: Path) -> None:
    path = write(tmp_path, '{"prompt": "a", "q": "b"}\n')
    with pytest.raises(DataError, match=r"'prompt' and 'q' would both be called 'prompt'"):
        load_rows("jsonl", split="train", rows=None, seed=0, path=path, prompt="q")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.columns\.gold = 'anwser'.*did you mean 'answer'"):
        load_rows("jsonl", split="train", rows=None, seed=0, path=write(tmp_path, GOOD), columns={"gold": "anwser"})


def test_fewer_rows_are_drawn_by_seed_without_repeats(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f'{{"prompt": "{index}"}}\n' for index in range(20)))
    first, again, other = (load_rows("jsonl", split="train", rows=10, seed=s, path=path) for s in (0, 0, 1))
    assert first == again != other
    assert len({str(row["prompt"]) for row in first}) == 10


def test_more_rows_than_the_file_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.rows = 2, but .* has 1"):
        load_rows("jsonl", split="train", rows=2, seed=0, path=write(tmp_path, GOOD))


def test_heldout_needs_its_own_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    with pytest.raises(DataError, match=r"fix: set data\.heldout_path"):
        load_rows("jsonl", split="heldout", rows=None, seed=0, path=path)
    assert len(load_rows("jsonl", split="heldout", rows=None, seed=0, heldout_path=path)) == 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.path = .*absent\.jsonl.*No such file"):
        load_rows("jsonl", split="train", rows=None, seed=0, path=tmp_path / "absent.jsonl")


def test_chat_wraps_text_and_leaves_conversations(tmp_path: Path) -> None:
    path = write(tmp_path, '{"prompt": "hi"}\n')
    (row,) = load_rows("jsonl", split="train", rows=None, seed=0, path=path, chat=True)
    assert row["prompt"] == [{"role": "user", "content": "hi"}]
    path = write(tmp_path, '{"prompt": [{"role": "user", "content": "hi"}]}\n')
    assert load_rows("jsonl", split="train", rows=None, seed=0, path=path, chat=True) == [row]
