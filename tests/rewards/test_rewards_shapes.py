"""Functions written for TRL, vime, Align-Anything and OpenRLHF, unchanged, over one batch."""

from collections.abc import Callable
from typing import Any

import pytest

from rewards.asking.dialects import DIALECTS
from rewards.batch import Batch
from rewards.calling.loading import load
from rewards.calling.signature import read_signature, signature_of
from rewards.calling.targets import LoadError
from rewards.contract import ContractError, FunctionSpec
from rewards.scoring import Scorer, ScoreResult

UserFile = Callable[..., str]

PROMPTS = [
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1+1?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2+2?"}],
]
COMPLETIONS = [[{"role": "assistant", "content": "2"}], [{"role": "assistant", "content": "5"}]]


def scored(target: str, columns: dict[str, list[Any]] | None = None, **spec: Any) -> ScoreResult:
    scorer = Scorer([FunctionSpec(name="f", target=target, **spec)])
    columns = {"answer": ["2", "4"]} if columns is None else columns
    return scorer.score(PROMPTS, COMPLETIONS, columns, group_ids=[7, 7])


SHAPES = {
    "trl": "def f(prompts, completions, answer, **kwargs):\n"
    "    return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]\n",
    "trl_async": "async def f(completions, answer):\n"
    "    return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]\n",
    "vime_sample": "async def f(args, sample, **kwargs):\n    return float(sample.response == sample.label)\n",
    "vime_sample_plain": "def f(args, sample):\n    return float(sample.response == sample.label)\n",
    "vime_group": "async def f(args, samples, **kwargs):\n"
    "    assert {s.group_index for s in samples} == {7}\n"
    "    return [float(s.response == s.label) for s in samples]\n",
    "align_anything": "def f(prompts, responses, golden_responses=None):\n"
    "    assert prompts == ['What is 1+1?', 'What is 2+2?']\n"
    "    return [float(r == g) for r, g in zip(responses, golden_responses)]\n",
    "openrlhf": "import torch\n"
    "def f(queries, prompts, labels, **kwargs):\n"
    "    assert all(q.startswith(p) for q, p in zip(queries, prompts))\n"
    "    got = torch.tensor([float(q[len(p):] == a) for q, p, a in zip(queries, prompts, labels)])\n"
    "    return {'rewards': got, 'scores': got, 'extra_logs': {'length': got * 3}}\n",
    "openrlhf_list": "def f(queries, prompts, labels):\n"
    "    return [float(q.endswith(a)) for q, a in zip(queries, labels)]\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_scores_alike(user_file: UserFile, shape: str) -> None:
    target = user_file(SHAPES[shape]) + ":f"
    assert scored(target).rewards == [1.0, 0.0]
    # check reads the source, the server loads the function: both see the same shape.
    assert read_signature(target) == signature_of(load(target))


@pytest.mark.parametrize("shape", ["vime_sample", "vime_group", "align_anything", "openrlhf_list"])
def test_the_column_label_comes_first_for_every_shape(user_file: UserFile, shape: str) -> None:
    columns = {"answer": ["4", "5"], "label": ["2", "4"], "solution": ["7", "7"]}
    assert scored(user_file(SHAPES[shape]) + ":f", columns).rewards == [1.0, 0.0]
    batch = Batch(prompts=["q", "q"], completions=["2", "5"], columns=columns)
    assert DIALECTS["openrlhf"].body(batch)["labels"] == ["2", "4"]


def test_openrlhf_extra_logs_are_kept(user_file: UserFile) -> None:
    logs = scored(user_file(SHAPES["openrlhf"]) + ":f").logs
    assert logs == {"f/scores": [1.0, 0.0], "f/length": [3.0, 0.0]}


def test_positional_shapes_can_be_named_where_parameters_do_not_show_them(user_file: UserFile) -> None:
    target = user_file("def f(a, s):\n    return float(s.response == s.label)\n") + ":f"
    with pytest.raises(LoadError, match="set `shape`"):
        scored(target)
    assert scored(target, shape="vime_sample").rewards == [1.0, 0.0]


def test_a_sample_carries_what_the_row_and_the_rollout_know(user_file: UserFile) -> None:
    target = user_file(
        "def f(args, sample):\n"
        "    assert args.bonus == 2 and args.reward_key is None\n"
        "    assert sample.status is sample.Status.TRUNCATED and sample.status.value == 'truncated'\n"
        "    assert sample.metadata['level'] == 3 and sample.metadata['rm_type'] == 'math'\n"
        "    assert sample.tokens == [5, 6] and sample.response_length == 2\n"
        "    return float(sample.index)\n"
    )
    scorer = Scorer([FunctionSpec(name="f", target=target + ":f", params={"bonus": 2})])
    columns = {"level": [3, 3, 3], "metadata": [{"rm_type": "math"}] * 3, "completion_ids": [[5, 6]] * 3}
    statuses = ["aborted", "truncated", "truncated"]
    result = scorer.score(["p"] * 3, ["c"] * 3, columns, statuses=statuses)
    assert result.rewards == [None, 1.0, 2.0]  # the index is the one in the whole batch
    assert result.aborted == [0]


def test_args_without_the_name_say_where_to_give_it(user_file: UserFile) -> None:
    target = user_file("def f(args, sample):\n    return args.rm_url\n") + ":f"
    with pytest.raises(ContractError, match=r"args has no 'rm_url': give it in the function's params"):
        scored(target)


def test_files_that_import_the_sample_class_of_slime_or_vime_load_without_them(user_file: UserFile) -> None:
    source = "from slime.utils.types import Sample\nfrom vime.utils.types import Sample as Same\n"
    source += "async def f(args, sample: Sample) -> float:\n    return float(isinstance(sample, Same))\n"
    assert scored(user_file(source) + ":f").rewards == [1.0, 1.0]


def test_without_gold_the_frameworks_own_contract_holds(user_file: UserFile) -> None:
    target = user_file(
        "def f(prompts, responses, golden_responses):\n    return [float(golden_responses is None)] * 2\n"
    )
    assert scored(target + ":f", columns={}).rewards == [1.0, 1.0]
    target = user_file("def f(args, sample):\n    return float(sample.label is None)\n", "other.py")
    assert scored(target + ":f", columns={}).rewards == [1.0, 1.0]


def test_only_units_that_a_shape_can_take(user_file: UserFile) -> None:
    target = user_file(SHAPES["vime_sample"]) + ":f"
    with pytest.raises(LoadError, match=r"granularity 'batch' is not possible.*possible: sample"):
        scored(target, granularity="batch")


def test_failed_and_aborted_samples_reach_no_function(user_file: UserFile) -> None:
    target = user_file("def f(completions):\n    return [float(len(completions))] * len(completions)\n")
    scorer = Scorer([FunctionSpec(name="f", target=target + ":f")])
    statuses = ["completed", "failed", "aborted", "truncated"]
    result = scorer.score(["p"] * 4, ["c"] * 4, statuses=statuses)
    assert result.rewards == [2.0, None, None, 2.0]
    assert (result.aborted, result.failed) == ([2], [1])


def test_another_key_counts_in_an_evaluation(user_file: UserFile) -> None:
    target = user_file("def f(completions):\n    return [{'score': -1.0, 'acc': True}] * len(completions)\n") + ":f"
    scorer = Scorer([FunctionSpec(name="f", target=target, key="score", eval_key="acc")])
    assert scorer.score(["p"], ["c"]).rewards == [-1.0]
    assert scorer.score(["p"], ["c"], evaluation=True).rewards == [1.0]
