import json
import subprocess
import sys
from typing import Any

import pytest

from orchestrator.data import DataError, load_rows
from orchestrator.data import reasoning_gym as source
from orchestrator.data.gym_entries import splits

package: Any = pytest.importorskip("reasoning_gym", reason="the extra orchestrate[reasoning_gym] is not installed")

SMALL = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}  # 200 questions: 10 x 10, plus and minus


def rows(split: str, **how: Any) -> list[dict[str, Any]]:
    wanted = {"task": "chain_sum", "params": SMALL, "rows": 60, "other_rows": 30, "seed": 0}
    return load_rows("reasoning_gym", split=split, **{**wanted, **how})


def made(task: str, count: int = 6, **params: Any) -> list[dict[str, Any]]:
    """Training rows, made in this process."""
    return splits(task, params, seed=0, train=count, heldout=0)["train"]


def test_rows_carry_what_their_scorers_read() -> None:
    for row in rows("train"):
        entry = {**row, "metadata": json.loads(row["metadata"])}
        scorer = package.get_score_answer_fn(entry["metadata"]["source_dataset"])
        assert scorer(row["answer"], entry) == 1.0
        assert row["prompt"] == row["question"]


def test_the_builtin_reward_scores_them_without_further_settings() -> None:
    from rewards.functions.reasoning_gym import reasoning_gym

    got = rows("train", chat=True)
    columns = {name: [row[name] for row in got] for name in got[0]}
    prompts = columns.pop("prompt")
    assert prompts[0] == [{"role": "user", "content": columns["question"][0]}]
    assert reasoning_gym(prompts, columns["answer"], **columns) == [1.0] * len(got)
    assert reasoning_gym(prompts, ["no idea"] * len(got), **columns) == [0.0] * len(got)


def test_no_question_is_there_twice() -> None:
    # 190 of 200: by chance alone, both would repeat themselves and each other.
    both = splits("chain_sum", SMALL, seed=0, train=140, heldout=50)
    assert len({row["question"] for row in both["train"] + both["heldout"]}) == 190


def test_a_seed_decides_the_training_rows_alone() -> None:
    first, second = (splits("chain_sum", SMALL, seed=seed, train=60, heldout=30) for seed in (0, 1))
    assert first == {split: rows(split, rows=len(first[split]), other_rows=90 - len(first[split])) for split in first}
    assert len({row["question"] for row in first["train"]} & {row["question"] for row in second["train"]}) < 40
    assert first["heldout"] == second["heldout"]
    assert splits("chain_sum", SMALL, seed=0, train=0, heldout=10)["heldout"] == first["heldout"][:10]


def test_every_process_gets_the_same_rows() -> None:
    """One draws from Python's global generator, the other from sets."""
    program = """
from orchestrator.data import describe, load_rows
for task in ("list_functions", "ransom_note"):
    print(describe(load_rows("reasoning_gym", split="train", rows=6, seed=0, task=task)).fingerprint)
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE)
        for seed in ("1", "2")
    ]
    first, second = (process.communicate(timeout=120)[0] for process in processes)
    assert len(first.split()) == 2
    assert first == second


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # theirs
def test_what_a_data_set_prints_is_not_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    splits("codeio", {}, seed=3, train=25, heldout=0)
    assert "Error generating I/O pair" in capsys.readouterr().out
    assert len(rows("train", task="codeio", params={}, rows=25, other_rows=0, seed=3)) == 25


def test_metadata_that_json_does_not_know() -> None:
    assert all(json.loads(row["metadata"]) for row in made("gsm_symbolic", 30))  # fractions


def test_a_mix_of_data_sets() -> None:
    parts = [{"name": "gcd", "weight": 1, "config": {}}, {"name": "chain_sum", "weight": 1, "config": {"max_terms": 3}}]
    assert {json.loads(row["metadata"])["source_dataset"] for row in made("composite", 20, datasets=parts)} == {
        "gcd",
        "chain_sum",
    }


WRONG: dict[str, dict[str, Any]] = {
    "no data set of reasoning_gym; did you mean 'chain_sum'": {"task": "chain_summ"},
    "data.task is not set": {"task": None},
    "data.params.min_term is no parameter .*did you mean 'min_terms'": {"params": {"min_term": 2}},
    "do not suit .*min_terms must be positive": {"params": {"min_terms": -2}},
    "do not suit .*not supported between": {"params": {"min_terms": "two"}},
    "data.params.size is set beside data.rows": {"params": {"size": 2}},
    "data.params.seed is set beside data.seed": {"params": {"seed": 2}},
    "data.rows = null, but reasoning_gym never ends": {"rows": None},
    "data.rows = 171, .*about 170 questions that are not held out; fix: set data.rows to at most 170": {"rows": 171},
    "evaluation.rows = 201, .*about 200 questions; fix: set evaluation.rows": {"other_rows": 201},
    "data.path is set, but source reasoning_gym does not read it": {"path": "x.jsonl"},
}


@pytest.mark.parametrize("words", WRONG)
def test_what_cannot_be_made_says_why(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_splits", in_this_process)
    with pytest.raises(DataError, match=words):
        rows("train", **WRONG[words])


def in_this_process(request: str) -> str:
    return json.dumps(splits(**json.loads(request)))


def test_an_error_crosses_the_process_with_its_words() -> None:
    with pytest.raises(DataError, match=r"^data\.task = 'chain_summ' is no data set"):
        rows("train", task="chain_summ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # theirs
def test_an_entry_that_cannot_be_made_is_left_out() -> None:
    assert len(made("maze", 20)) == 20
    with pytest.raises(
        DataError, match=r"about 0 questions.*; the last failed with \w+Error: .*; fix: change data\.params"
    ):
        made("gcd", min_value=1.5)


def test_a_process_that_fails_or_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "DEADLINE_S", 0.05)
    with pytest.raises(DataError, match=r"within 0\.05 s; fix: fewer rows"):
        rows("train", seed=99)
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(DataError, match=r"reasoning_gym fails at .*chain_sum.*: exit code 1; fix"):
        rows("train", seed=99)


def test_a_setting_of_this_source_is_not_ignored_by_another() -> None:
    with pytest.raises(DataError, match=r"data\.task is set, but source arithmetic does not read it"):
        load_rows("arithmetic", split="train", rows=1, seed=0, task="gcd")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(DataError, match=r"pip install 'orchestrate\[reasoning_gym\]'"):
        rows("train")
