"""What TRL gets from the reward callables, by one process and by two that share a group."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.schema import PostProcessConfig, RewardConfig, RewardFunctionConfig
from orchestrator.supervise.leases import lease_ports
from orchestrator.training.metrics import rewards_by_step
from orchestrator.training.reward import RewardBatch, reward_callables
from orchestrator.training.samples import SampleLog, unscored_in
from orchestrator.training.scoring import make_scoring, reward_weights

SCRIPT = Path(__file__).with_name("two_ranks.py")
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 90.0

FUNCTIONS = """
def best(prompts, completions, completion_ids, gold, **kwargs):
    assert len(set(prompts)) == 1, prompts
    assert [len(ids) for ids in completion_ids] == [len(text) for text in completions] == [int(g) + 1 for g in gold]
    longest = max(map(len, completions))
    return [float(len(text) == longest) for text in completions]

def length(completions, **kwargs):
    {error}
    return [float(len(text)) for text in completions]

def hook(rewards, group_ids, **kwargs):
    sums = {{}}
    for reward, group in zip(rewards, group_ids):
        sums[group] = sums.get(group, 0.0) + reward
    return rewards, [reward - sums[group] for reward, group in zip(rewards, group_ids)]
"""


def ranks(folder: Path, *, error: str = "pass", processes: int = 2) -> list["subprocess.CompletedProcess[str]"]:
    """Each rank's process, ended."""
    file = folder / "mine.py"
    file.write_text(FUNCTIONS.format(error=error))
    (lease,) = lease_ports(1)
    with lease:
        env = os.environ | {
            "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(lease.port),
            "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        children = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), str(folder), str(file)],
                env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(processes)
        ]
        try:
            said = [child.communicate(timeout=LIMIT_S) for child in children]
        finally:
            for child in children:
                child.kill()
    return [
        subprocess.CompletedProcess(child.args, child.returncode, out, err)
        for child, (out, err) in zip(children, said, strict=True)
    ]


def test_groups_that_straddle_two_processes(tmp_path: Path) -> None:
    for ended in ranks(tmp_path):
        assert ended.returncode == 0, ended.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert (first["requests"], second["requests"]) == ([12], [])
    together = {name: first["columns"][name] + second["columns"][name] for name in ("best", "length", "post_process")}
    lengths = [float(i + 1) for i in range(11)] + [None]  # the last one was aborted
    best = [0.0, 0.0, 0.0, 1.0] * 2 + [0.0, 0.0, 1.0, None]
    totals = [None if b is None or n is None else 2 * b + n for b, n in zip(best, lengths, strict=True)]
    sums = [sum(t or 0.0 for t in totals[i : i + 4]) for i in (0, 4, 8)]
    processed = [None if t is None else t - sums[i // 4] for i, t in enumerate(totals)]
    assert together == {"best": best, "length": lengths, "post_process": processed}
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert [one["reward"] for one in samples] == processed
    assert [one["raw"] for one in samples] == totals
    assert samples[5]["components"] == {"best": 0.0, "length": 6.0}
    assert samples[5]["step"] == 7
    assert second["logged"] == {}
    scored = [t for t in totals if t is not None]
    assert first["logged"] == {
        "groups/unscored": 0.0, "groups/no_spread": 0.0, "samples/masked": 0.0, "samples/failed": 0.0,
        "samples/aborted": 1.0, "reward_raw": pytest.approx(sum(scored) / len(scored)),
    }  # fmt: skip
    assert unscored_in(tmp_path / "samples.jsonl") == {"masked": 0, "failed": 0, "aborted": 1}


def test_an_error_ends_all_processes_with_the_same_words(tmp_path: Path) -> None:
    ended = ranks(tmp_path, error="assert False, 'no such thing'")
    words = "ContractError: length raised AssertionError"
    assert [one.returncode for one in ended] == [1, 1]
    assert all(words in one.stderr for one in ended), ended[1].stderr
    assert "MainProcessError" in ended[1].stderr


def call(batch: RewardBatch, statuses: list[str], completions: list[str]) -> dict[str, list[float | None]]:
    logged: dict[str, float] = {}
    columns = {
        reward.__name__: reward(
            prompts=["p"] * len(completions),
            completions=completions,
            completion_ids=[[1]] * len(completions),
            rollout_status=statuses,
            trainer_state=SimpleNamespace(global_step=0),
            log_metric=logged.__setitem__,
            log_extra=None,
            environments=[object()] * len(completions),
        )
        for reward in reward_callables(batch)
    }
    return columns | {"logged": logged}  # type: ignore[dict-item]


def in_process(folder: Path, source: str, *, training: bool = True, **settings: Any) -> RewardBatch:
    (folder / "mine.py").write_text(source)
    function = RewardFunctionConfig(name="mine", target=f"{folder}/mine.py:mine", **settings.pop("function", {}))
    reward = RewardConfig(kind="inprocess", functions=[function], **settings)
    scoring = make_scoring(reward, 4)
    return RewardBatch(
        score=scoring.score,
        names=("mine",),
        group_size=lambda: 2,
        samples=SampleLog(path=folder / "samples.jsonl"),
        wants_ids=scoring.wants_ids,
        is_training=lambda: training,
        post_process=bool(reward.post_process.target),
    )


def test_masked_failed_and_aborted_samples_are_counted(tmp_path: Path) -> None:
    source = "def mine(completions, **kwargs):\n    return [1.0 / len(completion) for completion in completions]\n"
    batch = in_process(tmp_path, source, on_error="mask", function={"granularity": "sample"})
    columns: dict[str, Any] = call(batch, ["completed", "aborted", "truncated", "failed"], ["ab", "c", "", "d"])
    assert columns["mine"] == [0.5, None, None, None]
    counts = {name: value for name, value in columns["logged"].items() if name.startswith("samples/")}
    assert counts == {"samples/masked": 1.0, "samples/failed": 1.0, "samples/aborted": 1.0}
    assert unscored_in(tmp_path / "samples.jsonl") == {"masked": 1, "failed": 1, "aborted": 1}


DICTS = "def mine(completions, **kwargs):\n    return [{'a': 1.0, 'b': float(len(c))} for c in completions]\n"


@pytest.mark.parametrize(("training", "expected"), [(True, [1.0, 1.0]), (False, [2.0, 3.0])])
def test_eval_key_counts_where_trl_evaluates(tmp_path: Path, training: bool, expected: list[float]) -> None:
    batch = in_process(tmp_path, DICTS, training=training, function={"key": "a", "eval_key": "b"})
    assert call(batch, ["completed"] * 2, ["xx", "xxx"])["mine"] == expected
    assert (tmp_path / "samples.jsonl").exists() is training


def test_an_evaluation_shows_the_rewards_before_the_hook(tmp_path: Path) -> None:
    hook = PostProcessConfig(target="group_norm", params={"std": False})
    columns = call(
        in_process(tmp_path, DICTS, function={"key": "b"}, post_process=hook), ["completed"] * 2, ["x", "xxx"]
    )
    assert (columns["mine"], columns["post_process"]) == ([1.0, 3.0], [-1.0, 1.0])
    evaluating = in_process(tmp_path, DICTS, training=False, function={"key": "b"}, post_process=hook)
    assert call(evaluating, ["completed"] * 2, ["x", "xxx"])["post_process"] == [1.0, 3.0]


def test_only_the_hook_has_a_weight() -> None:
    functions = [RewardFunctionConfig(name="a", weight=0.5), RewardFunctionConfig(name="b")]
    assert reward_weights(RewardConfig(functions=functions)) == [0.5, 1.0]
    hook = PostProcessConfig(target="group_norm")
    assert reward_weights(RewardConfig(functions=functions, post_process=hook)) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("source", "wants"),
    [
        ("def mine(args, sample):\n    return float(len(sample.tokens))\n", True),
        (
            "def mine(completions, completion_ids, **kwargs):\n    return [float(len(i)) for i in completion_ids]\n",
            True,
        ),
        ("def mine(completions, **kwargs):\n    return [1.0] * len(completions)\n", False),
    ],
)
def test_token_ids_are_sent_to_those_that_want_them(tmp_path: Path, source: str, wants: bool) -> None:
    batch = in_process(tmp_path, source)
    assert batch.wants_ids is wants
    assert call(batch, ["completed"] * 2, ["x", "y"])["mine"] == [1.0, 1.0]


def test_the_report_counts_rewards_before_the_hook(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": 1, "reward": 0.0, "reward_raw": 0.5}, {"step": 2, "reward": 0.25}, {"step": 3, "loss": 1.0}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert rewards_by_step(path) == [0.5, 0.25]
