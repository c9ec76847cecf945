"""reasoning_gym's own scorers behind our function, for entries as data sets store them."""

import inspect
import json
import re
import sys
from typing import Any

import pytest

from rewards.contract import PrepareError
from rewards.functions.reasoning_gym import EXPRESSIONS, LITERALS, may_be_read, prepare, reasoning_gym

package: Any = pytest.importorskip("reasoning_gym", reason="the extra orchestrate[reasoning_gym] is not installed")

RUNS_CODE = re.compile(r"\b(eval|exec|sympify)\(|\b(sympy\.|sp\.)parse_expr\(|(?<![\w.])parse_expr\(")


def entry(name: str, seed: int = 1) -> dict[str, Any]:
    return dict(package.create_dataset(name, size=1, seed=seed)[0])


def score(completion: str, row: dict[str, Any], *, as_json: bool = True) -> float | None:
    metadata = json.dumps(row["metadata"]) if as_json else row["metadata"]
    (found,) = reasoning_gym([""], [completion], metadata=[metadata], answer=[row["answer"]], question=[None])
    return found


# With tuples in the metadata (arc_agi), numbers, words, boards, and equations.
NAMES = ("basic_arithmetic", "letter_counting", "gsm_symbolic", "arc_agi", "n_queens", "countdown", "simple_equations")


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_an_entrys_own_answer_scores_one_and_nonsense_less(name: str, as_json: bool) -> None:
    row = entry(name)
    assert score(f"<think>so</think>\n<answer>{row['answer']}</answer>", row, as_json=as_json) == 1.0
    wrong = score("<answer>no idea</answer>", row, as_json=as_json)
    assert wrong is not None
    assert 0.0 <= wrong < 0.5


def test_which_text_is_the_answer() -> None:
    row = entry("basic_arithmetic")  # -4
    assert score("-4", row) == 1.0
    assert score("<think>5</think> -4", row) == 1.0
    assert score("<think><answer>-4</answer></think>", row) == 0.0
    assert score("<answer>5</answer><answer>-4</answer>", row) == 1.0


def test_partial_credit_is_theirs() -> None:
    row = entry("prime_factorization")
    scorer = package.get_score_answer_fn("prime_factorization")
    assert score("<answer>2 × 5</answer>", row) == scorer("2 × 5", row) == 0.01
    with pytest.raises(ValueError, match="invalid literal"):
        scorer("qqq", row)
    assert score("<answer>qqq</answer>", row) == 0.0


def test_an_entry_without_an_answer_of_its_own() -> None:
    row = entry("propositional_logic")
    assert row["answer"] is None
    scorer, best = package.get_score_answer_fn("propositional_logic"), row["metadata"]["example_answer"]
    assert score(f"<answer>{best}</answer>", row) == scorer(best, row) > 0.0
    del row["metadata"]["premises"]
    with pytest.raises(ValueError, match=r"propositional_logic lacks \['premises'\]"):
        score("<answer>P</answer>", row)


def damaged(**changes: Any) -> dict[str, Any]:
    row = entry("word_ladder")
    return {**row, "metadata": {**row["metadata"], **changes}}


BAD: dict[str, dict[str, Any]] = {
    "no 'source_dataset'": {**entry("letter_counting"), "metadata": {"x": 1}},
    "no data set 'letter_countin' .did you mean letter_counting": damaged(source_dataset="letter_countin"),
    r"lacks \['start_word'\]": damaged(start_word=None),
    "42 is not a text": {**entry("letter_counting"), "answer": 42},
    "metadata is a list": {**entry("letter_counting"), "metadata": [1]},
    "must score 1": {**entry("countdown"), "answer": "1 + 1"},
}


@pytest.mark.parametrize("words", BAD)
def test_an_entry_that_cannot_be_scored_is_an_error(words: str) -> None:
    with pytest.raises(ValueError, match=words):
        score("<answer>1</answer>", BAD[words])


@pytest.mark.parametrize("seed", range(4))
def test_a_data_set_whose_scorer_pays_anything_is_refused(seed: int) -> None:
    row = entry("game_of_life_halting", seed)
    assert package.get_score_answer_fn("game_of_life_halting")("nonsense", row) == 1.0
    with pytest.raises(ValueError, match="game_of_life_halting gives 1 to any answer"):
        score(f"<answer>{row['answer']}</answer>", row)


def test_metadata_that_is_no_json_and_rows_of_others() -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
        reasoning_gym([""], ["1"], metadata=["{"], answer=["1"])
    assert reasoning_gym([""], ["1"], metadata=[None], answer=["1"]) == [None]


CODE = (
    '[__import__("os").system("false")]',
    "exec(chr(97))",
    "(1).__class__",
    "x.diff(x)",
    "open('f')",
    "[1 for _ in [1]]",
)


def test_no_answer_is_run_as_code() -> None:
    for name in (*LITERALS, *EXPRESSIONS):
        row = entry(name)
        assert [code for code in CODE if may_be_read(name, code, row)] == []
        assert score(f"<answer>{CODE[0]}</answer>", row) == 0.0
    assert may_be_read("spiral_matrix", "[1, 2]", entry("spiral_matrix"))
    assert may_be_read("simple_integration", "x**2/2 + sin(x)*exp(2*x) + C", entry("simple_integration"))


def test_every_scorer_that_runs_an_answer_is_known() -> None:
    datasets = sys.modules["reasoning_gym.factory"].DATASETS
    running = {name for name, (kind, _) in datasets.items() if RUNS_CODE.search(inspect.getsource(kind.score_answer))}
    # number_sorting evaluates the entry's own answer, which is data, never the model's.
    assert running - {"number_sorting"} == LITERALS | EXPRESSIONS


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare()
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(PrepareError, match=r"pip install 'orchestrate\[reasoning_gym\]'"):
        prepare()
