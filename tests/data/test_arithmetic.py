import pytest

from orchestrator.data import DataError, load_rows


def prompts(split: str, rows: int | None, seed: int) -> list[object]:
    return [row["prompt"] for row in load_rows("arithmetic", split=split, rows=rows, seed=seed)]


def test_rows_hold_a_prompt_and_its_sum() -> None:
    for row in load_rows("arithmetic", split="train", rows=None, seed=0):
        a, b = str(row["prompt"]).removesuffix("=").split("+")
        assert row["answer"] == str(int(a) + int(b))


def test_splits_are_disjoint_and_cover_every_pair() -> None:
    train, heldout = prompts("train", None, 0), prompts("heldout", None, 0)
    assert (len(train), len(heldout)) == (800, 100)
    assert set(train) | set(heldout) == {f"{a}+{b}=" for a in range(30) for b in range(30)}


def test_a_pair_and_its_mirror_are_on_the_same_side() -> None:
    heldout = prompts("heldout", None, 0)
    assert {"{1}+{0}=".format(*str(p).rstrip("=").split("+")) for p in heldout} == set(heldout)


def test_the_split_does_not_depend_on_the_seed() -> None:
    assert set(prompts("heldout", None, 0)) == set(prompts("heldout", None, 1))


def test_a_seed_repeats_and_another_differs() -> None:
    assert prompts("train", 50, 3) == prompts("train", 50, 3)
    assert prompts("train", 50, 3) != prompts("train", 50, 4)


def test_the_rows_of_a_seed_never_change() -> None:
    # Pinned: another Python or another release must train on the same prompts.
    assert prompts("train", 3, 0) == ["14+7=", "4+9=", "25+17="]
    assert prompts("heldout", 3, 0) == ["18+6=", "16+19=", "22+11="]


def test_train_repeats_only_when_exhausted_and_reshuffles() -> None:
    drawn = prompts("train", 1600, 0)
    assert set(drawn[:800]) == set(drawn[800:])
    assert len(set(drawn[:800])) == 800
    assert drawn[:800] != drawn[800:]


def test_heldout_says_how_many_there_are() -> None:
    with pytest.raises(DataError, match=r"evaluation\.rows = 101.*holds out 100"):
        prompts("heldout", 101, 0)


def test_a_path_is_not_ignored() -> None:
    with pytest.raises(DataError, match=r"data\.path is set, but source arithmetic does not read it"):
        load_rows("arithmetic", split="train", rows=1, seed=0, path="x.jsonl")


def test_columns_can_be_renamed() -> None:
    (row,) = load_rows("arithmetic", split="train", rows=1, seed=0, columns={"gold": "answer"})
    assert row.keys() == {"prompt", "gold"}
