"""The files of a run."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from orchestrator.supervise.rundir import append_jsonl, create_run_dir, log_path, tail, write_json

NOW = datetime(2026, 1, 31, 23, 59, 59)


def test_runs_of_the_same_second_get_different_directories(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create_run_dir(tmp_path, "grpo", NOW), range(16)))
    assert len(set(made)) == 16
    assert (tmp_path / "grpo" / "2026-01-31_23-59-59").is_dir()
    assert (tmp_path / "grpo" / "2026-01-31_23-59-59-16").is_dir()
    assert (tmp_path / "grpo" / "latest").resolve() in made


@pytest.mark.parametrize("name", ["", "..", "a/b", "/tmp"])
def test_a_run_name_stays_below_the_root(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="one path component"):
        create_run_dir(tmp_path, name, NOW)


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_jsonl_grows(tmp_path: Path) -> None:
    append_jsonl(tmp_path / "x.jsonl", {"a": 1})
    append_jsonl(tmp_path / "x.jsonl", {"a": "é\n"})
    assert [json.loads(line)["a"] for line in (tmp_path / "x.jsonl").read_text().splitlines()] == [1, "é\n"]


def test_tail_of_a_huge_log_reads_its_end_only(tmp_path: Path) -> None:
    path = log_path(tmp_path, "vllm")
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, 2)
        file.write(b"\n" + b"".join(b"line %d\n" % number for number in range(1000)))
    assert tail(path, 3) == ("line 997", "line 998", "line 999")


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", ()),
        (b"one", ("one",)),
        (b"one\n\n  \ntwo\r\n", ("one", "two")),
        (b"10%\r50%\r100%\ndone\n", ("100%", "done")),
        (b"\xff broken\n", ("� broken",)),
        (b"x" * 200_000, ("x" * 1000,)),
    ],
)
def test_tail(tmp_path: Path, content: bytes, lines: tuple[str, ...]) -> None:
    (tmp_path / "log").write_bytes(content)
    assert tail(tmp_path / "log") == lines


def test_tail_of_no_log(tmp_path: Path) -> None:
    assert tail(tmp_path / "none") == ()
