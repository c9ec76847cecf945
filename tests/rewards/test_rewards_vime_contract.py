"""The contract that rewards of vime meet here: where vime has a late error or none, there is an explicit one."""

from collections.abc import Callable
from typing import Any

import pytest

from rewards.calling.post_process import hook_spec
from rewards.contract import ContractError, FunctionSpec
from rewards.scoring import OnError, Scorer, ScoreResult

UserFile = Callable[..., str]
SINGLE = "async def f(args, sample):\n    return float(sample.response == sample.label)\n"


def score(
    target: str,
    responses: list[str],
    *,
    labels: list[Any] | None = None,
    hook: str | None = "group_norm",
    groups: list[int] | None = None,
    on_error: OnError = "fail",
    statuses: list[str] | None = None,
    **spec: Any,
) -> ScoreResult:
    count = len(responses)
    scorer = Scorer(
        [FunctionSpec(name="f", target=target + ":f", **spec)], on_error, post_process=hook_spec(hook) if hook else None
    )
    labels = ["yes"] * count if labels is None else labels
    return scorer.score(["q"] * count, responses, {"label": labels}, group_ids=groups or [0] * count, statuses=statuses)


@pytest.mark.parametrize("source", [SINGLE, SINGLE.replace("async ", "")], ids=["async", "plain def"])
def test_single(user_file: UserFile, source: str) -> None:
    result = score(user_file(source), ["yes", "no", "no", "yes"])
    assert result.raw == [1.0, 0.0, 0.0, 1.0]
    assert result.rewards == pytest.approx([0.86602, -0.86602, -0.86602, 0.86602], abs=1e-4)


def test_group(user_file: UserFile) -> None:
    result = score(
        user_file("async def f(args, samples):\n    return [len(s.response) for s in samples]\n"), ["a", "aaa", "aaaaa"]
    )
    assert result.raw == [1.0, 3.0, 5.0]
    assert result.rewards == pytest.approx([-1.0, 0.0, 1.0], abs=1e-5)


RETURNS = {
    "one too few": ("[1.0] * (len(samples) - 1)", "f returned 2 items for 3 samples, expected a list of 3"),
    "one too many": ("[1.0] * (len(samples) + 1)", "f returned 4 items for 3 samples, expected a list of 3"),
    "dict": ("{'a': 1}", "f returned a dict for 3 samples"),
    "str": ("'111'", "f returned a str for 3 samples"),
    "None": ("None", "f returned a NoneType for 3 samples"),
    "set": ("{1.0, 2.0, 3.0}", "f returned a set for 3 samples"),
    "view": ("{0: 1.0, 1: 2.0, 2: 3.0}.values()", "f returned a dict_values for 3 samples"),
    "generator": ("(1.0 for _ in samples)", "f returned a generator for 3 samples"),
}


@pytest.mark.parametrize("name", RETURNS)
def test_groups_that_are_no_list_of_the_right_length(user_file: UserFile, name: str) -> None:
    returned, words = RETURNS[name]
    with pytest.raises(ContractError) as error:
        score(user_file(f"async def f(args, samples):\n    return {returned}\n"), ["a", "b", "c"])
    assert words in str(error.value)
    assert error.value.index is None  # no sample is partly scored


def test_dict_with_its_key_keeps_the_rest_for_logs(user_file: UserFile) -> None:
    source = (
        "def f(args, sample):\n    ok = sample.response == sample.label\n    return {'score': int(ok), 'acc': ok}\n"
    )
    result = score(user_file(source), ["yes", "no", "no", "no"], key="score")
    assert result.raw == [1.0, 0.0, 0.0, 0.0]
    assert result.rewards == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-4)
    assert result.logs["f/acc"] == [1.0, 0.0, 0.0, 0.0]


def test_keys_and_dicts_that_do_not_fit_are_three_errors(user_file: UserFile) -> None:
    path = user_file("def f(args, sample):\n    return {'score': 1.0, 'acc': 1.0}\n")
    with pytest.raises(ContractError, match=r"no `key` is configured \(it has \['score', 'acc'\]\)"):
        score(path, ["a"])
    with pytest.raises(ContractError, match=r"without the configured key 'nope' \(it has \['score', 'acc'\]\)"):
        score(path, ["a"], key="nope")
    with pytest.raises(ContractError, match=r"a float, but key 'acc' is configured"):
        score(user_file(SINGLE, "scalar.py"), ["a"], key="acc")


@pytest.mark.parametrize(("value", "words"), [("float('nan')", "NaN"), ("float('inf')", "infinite"), ("'1'", "a str")])
def test_one_bad_value_is_an_error_or_masked_and_never_normalised(user_file: UserFile, value: str, words: str) -> None:
    path = user_file(
        f"def f(args, sample):\n    return {value} if sample.response == 'bad' else len(sample.response)\n"
    )
    with pytest.raises(ContractError, match=words) as error:
        score(path, ["a", "bad", "ccccc", "ddd"])
    assert error.value.index == 1
    masked = score(path, ["a", "bad", "ccccc", "ddd"], on_error="mask")
    assert masked.rewards == [pytest.approx(-1.0, abs=1e-5), None, pytest.approx(1.0, abs=1e-5), pytest.approx(0.0)]
    assert [failure.index for failure in masked.errors] == [1]


def test_none_means_not_mine_and_a_sample_that_nobody_scores_is_an_error(user_file: UserFile) -> None:
    path = user_file("def f(args, sample):\n    return None\n")
    with pytest.raises(ContractError, match="no function scored sample 0"):
        score(path, ["a"])


def test_an_exception_names_function_sample_and_place(user_file: UserFile) -> None:
    source = "def f(args, sample):\n    if sample.response == 'bad':\n        raise ValueError('missing gold')\n"
    source += "    return 1\n"
    with pytest.raises(ContractError, match=r"f raised ValueError on sample 2: missing gold \(.*mine.py:3 in f\)"):
        score(user_file(source), ["a", "b", "bad"])


def test_statuses(user_file: UserFile) -> None:
    source = "def f(args, sample):\n    return 1.0 if sample.status == sample.Status.TRUNCATED else 2.0\n"
    statuses = ["completed", "truncated", "failed", "aborted"]
    result = score(user_file(source), ["a"] * 4, statuses=statuses, hook=None)
    assert result.rewards == [2.0, 1.0, None, None]
    assert (result.failed, result.aborted) == ([2], [3])


HOOKS = {
    "short": ("return [1.0] * len(samples), [1.0] * (len(samples) - 1)", "post_process returned 2 processed rewards"),
    "one list": ("return [1.0] * len(samples)", "post_process returned a list of 3 (float, float, float)"),
    "strings": ("return [1.0] * 3, ['a', 'b', 'c']", "a str instead of a number for sample 0"),
    "raw strings": ("return ['a', 'b', 'c'], [1.0] * 3", "a str instead of a number as raw[0]"),
    "NaN": ("return [1.0] * 3, [0.0, float('nan'), 0.0]", "NaN for sample 1"),
    "None": ("return [1.0] * 3, [0.0, None, 0.0]", "None as the processed reward of sample 1"),
}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_that_break_the_contract(user_file: UserFile, name: str) -> None:
    body, words = HOOKS[name]
    path = user_file(f"def f(args, sample):\n    return 1.0\ndef hook(args, samples):\n    {body}\n")
    with pytest.raises(ContractError) as error:
        score(path, ["a", "b", "c"], hook=path + ":hook")
    assert words in str(error.value)
    assert "post_process" in str(error.value)


def test_a_hook_of_vimes_own_shape_sees_rewards_and_groups(user_file: UserFile) -> None:
    source = (
        "def f(args, sample):\n    return len(sample.response)\n"
        "def hook(args, samples):\n"
        "    raw = [s.get_reward_value(args) for s in samples]\n"
        "    ids = {s.group_index for s in samples}\n"
        "    best = {i: max(s.reward for s in samples if s.group_index == i) for i in ids}\n"
        "    assert samples[0].metadata['rewards'] == {'f': raw[0]}\n"
        "    return raw, [r - best[s.group_index] for r, s in zip(raw, samples)]\n"
    )
    path = user_file(source)
    result = score(path, ["a", "bbb", "cc"], groups=[1, 1, 2], hook=path + ":hook")
    assert result.raw == [1.0, 3.0, 2.0]
    assert result.rewards == [-2.0, 0.0, 0.0]


def test_equal_rewards_give_zeros(user_file: UserFile) -> None:
    path = user_file("def f(args, sample):\n    return 1.0\n")
    assert score(path, ["a"] * 4).rewards == [0.0] * 4


def test_groups_are_normalised_by_their_ids_never_as_one(user_file: UserFile) -> None:
    path = user_file("def f(args, sample):\n    return len(sample.response)\n")
    result = score(path, ["a", "aaaaa", "aaa"], groups=[4, 9, 4])
    assert result.raw == [1.0, 5.0, 3.0]
    assert result.rewards == pytest.approx([-0.70711, 0.0, 0.70711], abs=1e-5)


def test_the_label_keeps_the_type_that_the_data_have(user_file: UserFile) -> None:
    path = user_file(SINGLE)
    assert score(path, ["42"], labels=[42], hook=None).rewards == [0.0]
    assert score(path, ["42"], labels=["42"], hook=None).rewards == [1.0]
