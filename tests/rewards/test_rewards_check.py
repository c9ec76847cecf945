"""The contract test of reward functions, on the failures that people met and on functions that must pass."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import asdict

import pytest

from rewards.checking.check import contract_test
from rewards.checking.made_up import LONG, NUM_KINDS, Row, completions_for, gold_of, made_up
from rewards.checking.trial import Issue, Trial
from rewards.contract import FunctionSpec

ROWS = tuple(Row(label=f"row {n}", prompt=f"{n}+1=", columns={"answer": str(n + 1)}) for n in range(3))

SOURCE = """
import asyncio, os, random, signal, time
def short(completions, **c): return [1.0]
def long(completions, **c): return [1.0] * (len(completions) + 1)
def empty(completions, answer=None, **c): return []
def a_set(completions, **c): return {1.0}
def scalar(completions, **c): return 1.0
def texts(completions, **c): return ["1.0"] * len(completions)
def infinite(completions, **c): return [float("inf")] * len(completions)
def hard_coded(completions, **c): return [1.0, 0.0, 1.0]
def wants_more(completions, solution): return [1.0] * len(completions)
raises_at = "3"
def raises(completions, **c): return [float(c != raises_at or 1 / 0) for c in completions]
def leaves(completions, **c): raise SystemExit(0)
def dies(completions, **c): os.kill(os.getpid(), signal.SIGKILL)
def sleeps(completions, **c):
    time.sleep(10 if "" in completions else 0)
    return length(completions)
def sleeps_at_one(completions, **c):
    time.sleep(10 if len(completions) > 1 else 0)
    return length(completions)
async def hangs(completions, **c): await asyncio.sleep(100)
def counts(completions, seen=[], **c):
    seen.append(1)
    return [len(seen) + float(len(x)) for x in completions]
def dice(completions, **c): return [random.random() for _ in completions]
def zero(completions, **c): return [0.0] * len(completions)
def none(completions, **c): return [None] * len(completions)
def even(completions, **c): return [float(len(x)) if n % 2 == 0 else None for n, x in enumerate(completions)]
def odd(completions, **c): return [float(len(x)) if n % 2 == 1 else None for n, x in enumerate(completions)]
def length(completions, **c): return [float(len(x)) for x in completions]
def ids(completions, completion_ids): return [float(len(i)) for i in completion_ids]
def scored(completions, **c): return [{"score": float(len(x))} for x in completions]
async def later(completions, **c):
    await asyncio.sleep(0)
    return length(completions)
"""

Examine = Callable[..., list[Issue]]


@pytest.fixture
def examine(user_file: Callable[[str], str]) -> Examine:
    path = user_file(SOURCE)

    def run(*names: str, group: int = 3, timeout_s: float = 1.0, rows: tuple[Row, ...] = ROWS, **spec: object):
        specs = tuple(FunctionSpec(name=name, target=f"{path}:{name}", **spec) for name in names)
        trial = Trial(specs=specs, rows=rows, group_size=group, timeout_s=timeout_s, budget_s=60)
        sent = json.loads(json.dumps(trial.to_wire()))
        return asyncio.run(contract_test(Trial.from_wire(sent)))

    return run


@pytest.mark.parametrize(
    ("name", "group", "words"),
    [
        ("short", 3, ("1 items for 3 samples", "a list of 3")),  # B65
        ("short", 2, ("1 items for 2 samples", "a list of 2")),
        ("long", 4, ("5 items for 4 samples", "a list of 4")),
        ("empty", 3, ("0 items for 3 samples", "a list of 3")),  # B69
        ("empty", 8, ("0 items for 8 samples", "a list of 8")),
        ("a_set", 3, ("a set for 3 samples",)),
        ("scalar", 3, ("a float for 3 samples",)),
        ("texts", 3, ("a str instead of a number", "sample 0", "and on 2 more")),
        ("infinite", 3, ("an infinite number",)),
        ("hard_coded", 3, ("3 items for", "samples")),  # right for one group, wrong for a batch
        ("scored", 3, ("no `key` is configured", "score")),
    ],
)
def test_broken_contract(examine: Examine, name: str, group: int, words: tuple[str, ...]) -> None:
    (issue,) = examine(name, group=group)
    assert (issue.kind, issue.function) == ("contract", name)
    assert all(word in issue.message for word in words)
    assert issue.value


def test_a_missing_column_is_named_with_those_there_are(examine: Examine) -> None:  # B67
    (issue,) = examine("wants_more")
    assert issue.kind == "input"
    assert "'solution'" in issue.message
    assert "answer" in issue.message


@pytest.mark.parametrize(("name", "kind"), [("raises", "exception"), ("leaves", "exception"), ("dies", "crash")])
def test_a_call_that_fails_names_function_and_sample(examine: Examine, name: str, kind: str) -> None:
    (issue,) = examine(name, rows=(Row(label="row 7", prompt="2+1=", columns={"answer": "2"}),))
    assert (issue.kind, issue.function) == (kind, name)
    assert issue.sample == ("row 7, completion '3'" if name == "raises" else "row 7, completion '2'")
    if name == "raises":
        assert "ZeroDivisionError" in issue.message
        assert "mine.py:13" in issue.message


@pytest.mark.parametrize(
    ("name", "at"), [("sleeps", "row 0, completion ''"), ("sleeps_at_one", "row 0, completion '2'")]
)
def test_a_sleeper_is_ended_and_its_sample_named(examine: Examine, name: str, at: str) -> None:  # B77
    begun = time.monotonic()
    (issue,) = examine(name, timeout_s=0.5)
    assert time.monotonic() - begun < 9
    assert issue.kind == "timeout"
    assert "0.5 s" in issue.message
    assert issue.sample == at


def test_the_whole_test_is_over_after_its_budget(user_file: Callable[[str], str]) -> None:
    spec = FunctionSpec(name="hangs", target=f"{user_file(SOURCE)}:hangs")
    trial = Trial(specs=(spec,), rows=ROWS, group_size=3, timeout_s=50, budget_s=1)
    begun = time.monotonic()
    (issue,) = asyncio.run(contract_test(trial))
    assert time.monotonic() - begun < 5
    assert (issue.kind, "1 s" in issue.message) == ("timeout", True)


@pytest.mark.parametrize(("name", "kind"), [("counts", "unsteady"), ("dice", "unsteady"), ("zero", "flat")])
def test_what_is_odd_but_within_the_contract(examine: Examine, name: str, kind: str) -> None:
    assert [issue.kind for issue in examine(name)] == [kind]


def test_flat_without_a_gold_column_says_so(examine: Examine) -> None:
    (issue,) = examine("zero", rows=(Row(label="row 0", prompt="tell me", columns={"topic": "x"}),))
    assert not issue.has_gold


def test_nobody_scores(examine: Examine) -> None:  # B71
    (issue,) = examine("none")
    assert (issue.kind, issue.function) == ("unscored", None)
    assert "row 0, row 1, row 2" in issue.message


def test_each_sample_needs_one_number_and_one_is_enough(examine: Examine) -> None:  # B79
    assert examine("even", "odd") == []
    assert examine("none", "length") == []
    assert [issue.kind for issue in examine("even", "none")] == ["unscored"]


@pytest.mark.parametrize("name", ["length", "later", "ids"])
@pytest.mark.parametrize("group", [1, 2, 8])
def test_sound_functions_pass(examine: Examine, name: str, group: int) -> None:
    assert examine(name, group=group) == []


def test_sound_functions_pass_with_key_and_granularity(examine: Examine) -> None:
    assert examine("scored", key="score") == []
    assert examine("length", granularity="sample") == []
    assert examine("length", granularity="group") == []


def test_only_the_rows_that_a_function_scores(examine: Examine) -> None:
    only = {"answer": ["2"]}
    assert [issue.kind for issue in examine("length", only=only)] == ["unscored"]
    (issue,) = examine("short", only=only)
    assert (issue.kind, "1 items for 3 samples" in issue.message) == ("contract", True)
    (issue,) = examine("length", only={"sorce": ["2"]})
    assert (issue.kind, "'sorce'" in issue.message) == ("input", True)


def test_built_in_functions_pass() -> None:
    specs = tuple(FunctionSpec(name=name, target=name) for name in ("accuracy", "exact_match", "format"))
    trial = Trial(specs=specs, rows=ROWS, group_size=8, timeout_s=10, budget_s=100)
    assert asyncio.run(contract_test(trial)) == []


def test_one_function_that_does_not_load_hides_nothing(examine: Examine) -> None:
    issues = examine("no_such_function", "short")
    assert [(issue.kind, issue.function) for issue in issues] == [("load", "no_such_function"), ("contract", "short")]


@pytest.mark.parametrize("group", [1, 2, 3, 8, 16])
def test_made_up_groups_are_whole_and_show_every_kind(group: int) -> None:
    samples = made_up(ROWS, group)
    ids = list(samples.batch.group_ids or ())
    assert {ids.count(one) for one in ids} == {group}
    assert len({row for row, _ in samples.keys}) == len(ROWS)
    assert LONG in {text for _, text in samples.keys}
    assert "" in {text for _, text in samples.keys}


def test_completions_follow_the_gold_answer_and_the_form_of_the_prompt() -> None:
    row = Row(label="row", prompt=[{"role": "user", "content": "1+1="}], columns={"solution": 2, "other": "9"})
    assert gold_of(row) == "2"
    assert completions_for(row)[:3] == ("2", "3", "")
    assert len(completions_for(row)) == NUM_KINDS
    assert made_up([row], 2).batch.completions[0] == [{"role": "assistant", "content": "2"}]


def test_issues_are_json() -> None:
    issue = Issue(kind="flat", function="a", message="m")
    assert Issue(**json.loads(json.dumps(asdict(issue)))) == issue
