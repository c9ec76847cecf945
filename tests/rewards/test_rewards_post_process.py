"""The hook's own rules; what vime's contract says about hooks is in test_rewards_vime_contract.py."""

import re
from collections.abc import Callable

import pytest

from rewards.calling.post_process import hook_spec
from rewards.contract import ContractError, FunctionSpec
from rewards.hooks.group_norm import group_norm
from rewards.scoring import Scorer

UserFile = Callable[..., str]


def test_a_hook_gets_what_it_names(user_file: UserFile) -> None:
    path = user_file(
        "def hook(rewards, group_ids, components, answer, statuses, *, bonus):\n"
        "    assert components == {'a': [1.0, 2.0], 'b': [3.0, None]}, components\n"
        "    assert group_ids == [5, 5] and answer == ['x', 'y'] and statuses == ['completed', 'truncated']\n"
        "    return rewards, [reward + bonus for reward in rewards]\n"
        "def a(completions):\n    return [1.0, 2.0]\n"
        "def b(completions):\n    return [3.0, None]\n"
    )
    specs = [FunctionSpec(name=name, target=f"{path}:{name}") for name in ("a", "b")]
    scorer = Scorer(specs, post_process=hook_spec(path + ":hook", {"bonus": 10}))
    result = scorer.score(
        ["p"] * 2, ["c"] * 2, {"answer": ["x", "y"]}, group_ids=[5, 5], statuses=["completed", "truncated"]
    )
    assert result.raw == [4.0, 2.0]
    assert result.rewards == [14.0, 12.0]
    assert result.components == {"a": [1.0, 2.0], "b": [3.0, None]}


def test_errors_name_the_sample_of_the_whole_batch(user_file: UserFile) -> None:
    path = user_file(
        "def f(completions):\n    return [1.0] * len(completions)\n"
        "def hook(rewards):\n    return rewards, [0.0, float('inf')]\n"
    )
    scorer = Scorer([FunctionSpec(name="f", target=path + ":f")], post_process=hook_spec(path + ":hook"))
    with pytest.raises(ContractError, match="infinite number for sample 2") as error:
        scorer.score(["p"] * 3, ["c"] * 3, statuses=["aborted", "completed", "completed"])
    assert error.value.index == 2


@pytest.mark.parametrize(
    ("hook", "words", "value"),
    [
        (
            "def hook(args, samples):\n    raise ValueError([s.index for s in samples])",
            r"on samples 1, 3: \[1, 3\]",
            None,
        ),
        ("def hook(rewards):\n    return rewards, rewards[:1]", "returned 1 processed rewards for 2 samples", None),
        ("def hook(rewards):\n    return rewards, [0.0, None]", "None as the processed reward of sample 3", None),
    ],
)
def test_samples_keep_their_numbers_when_others_are_masked(
    user_file: UserFile, hook: str, words: str, value: str | None
) -> None:
    path = user_file(
        "def f(completions):\n    return [float('nan') if c == 'bad' else 1.0 for c in completions]\n" + hook
    )
    scorer = Scorer([FunctionSpec(name="f", target=path + ":f")], "mask", post_process=hook_spec(path + ":hook"))
    result = scorer.score(["p"] * 4, ["bad", "c", "c", "c"], statuses=["completed", "completed", "failed", "completed"])
    assert [error.index for error in result.errors if error.function == "f"] == [0]
    (failure,) = [error for error in result.errors if error.function == "post_process"]
    assert re.search(words, failure.message)
    assert failure.value == value


def test_nothing_to_process_is_no_call(user_file: UserFile) -> None:
    path = user_file(
        "def f(completions):\n    return [1.0] * len(completions)\ndef hook(rewards):\n    raise ValueError('called')\n"
    )
    scorer = Scorer([FunctionSpec(name="f", target=path + ":f")], post_process=hook_spec(path + ":hook"))
    result = scorer.score(["p"], ["c"], statuses=["aborted"])
    assert (result.rewards, result.raw) == ([None], [None])


def test_group_norm() -> None:
    raw, processed = group_norm([1.0, 3.0, 5.0, 2.0, 2.0], [0, 0, 1, 2, 2])
    assert raw == [1.0, 3.0, 5.0, 2.0, 2.0]
    assert processed == pytest.approx([-0.70711, 0.70711, 0.0, 0.0, 0.0], abs=1e-5)
    assert group_norm([1.0, 3.0], ["a", "a"], std=False)[1] == [-1.0, 1.0]
    with pytest.raises(ValueError, match="needs group_ids"):
        group_norm([1.0], None)
