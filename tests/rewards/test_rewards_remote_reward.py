"""RemoteReward as TRL's trainers use it: against a real server, and in a real GRPOTrainer."""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from reward_server import ROOT, RunningServer, StartServer

from rewards.client import RemoteReward, RewardError

SOURCE = """
def right(completions, answer, **kwargs):
    return [None if gold is None else {"score": float(text == gold), "size": float(len(text))}
            for text, gold in zip(completions, answer)]

async def tokens(args, sample):
    return -0.01 * len(sample.tokens)

def group(completions, **kwargs):
    assert len(completions) == 2, completions
    return [float(len(text)) for text in completions]

def names(completions, **kwargs):
    columns = sorted(name for name, value in kwargs.items() if isinstance(value, list))
    raise KeyError(" ".join(columns))
"""


def spec(file: Path, function: str, **more: Any) -> tuple[str, str]:
    return "--function", json.dumps({"name": function, "target": f"{file}:{function}", **more})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


class Trainer:
    """What TRL hands to a reward function beside the columns."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.extra: dict[str, list[Any]] = {}

    def kwargs(self, count: int) -> dict[str, Any]:
        return {
            "trainer_state": object(), "log_metric": self.metrics.__setitem__, "log_extra": self.extra.__setitem__,
            "environments": [object()] * count,
        }  # fmt: skip


def test_the_weighted_total_with_its_components_logged(start_server: StartServer, file: Path) -> None:
    server = start_server(*spec(file, "right", key="score", weight=2.0), *spec(file, "tokens"), "--on-error", "mask")
    reward, trainer = RemoteReward(server.url), Trainer()
    got = reward(
        prompts=["p"] * 3,
        completions=["1", "2", "3"],
        completion_ids=[[1], [1, 1], []],
        answer=["1", "1", None],
        **trainer.kwargs(3),
    )
    assert got == pytest.approx([2 - 0.01, -0.02, 0.0])
    assert reward.__name__ == "remote_reward"
    assert trainer.extra["remote_reward/right"] == [1.0, 0.0, None]
    assert trainer.extra["remote_reward/right/size"] == [1.0, 1.0, None]
    assert trainer.metrics == pytest.approx(
        {
            "remote_reward/right": 0.5, "remote_reward/tokens": -0.01, "remote_reward/right/size": 1.0,
            "remote_reward/unscored": 0.0,
        }
    )  # fmt: skip


def test_one_function_of_several(start_server: StartServer, file: Path) -> None:
    server = start_server(*spec(file, "right", key="score"), *spec(file, "group", granularity="group"))
    reward, trainer = RemoteReward(server.url, function="right", num_generations=2), Trainer()
    assert reward(["p", "p"], ["1", "2"], answer=["1", None], **trainer.kwargs(2)) == [1.0, None]
    assert reward.__name__ == "right"
    assert set(trainer.metrics) == {"right/right/size", "right/unscored"}
    with pytest.raises(RewardError, match=r"no reward function 'rihgt' \(did you mean right"):
        RemoteReward(server.url, function="rihgt")(["p"], ["1"], answer=["1"])


def test_groups(start_server: StartServer, file: Path) -> None:
    server = start_server(*spec(file, "group", granularity="group"))
    reward = RemoteReward(server.url, num_generations=2, name="mine")
    assert reward(["p", "p", "q", "q"], ["1", "12", "1", "1"]) == [1.0, 2.0, 1.0, 1.0]
    assert reward.__name__ == "mine"
    with pytest.raises(RewardError, match="3 completions are no whole groups of 2: with several processes"):
        reward(["p"] * 3, ["1"] * 3)
    with pytest.raises(RewardError, match="sample 1 has another prompt than the first of its group of 2"):
        reward(["p", "q"], ["1"] * 2)
    with pytest.raises(RewardError, match=r"422.*group scores whole groups: the batch needs group_ids"):
        RemoteReward(server.url)(["p"], ["1"])


def test_errors_are_the_servers_own_words(start_server: StartServer, file: Path) -> None:
    server = start_server(*spec(file, "names"))
    reward, trainer = RemoteReward(server.url), Trainer()
    kwargs = trainer.kwargs(1)
    with pytest.raises(RewardError, match=r"500: names raised KeyError.* 'answer prompts source statuses'"):
        reward(["p"], ["1"], completion_ids=[[1]], answer=["1"], source=["x"], **kwargs)
    with pytest.raises(RewardError, match="column 'image' of sample 0 holds a object"):
        reward(["p"], ["1"], image=[object()], **kwargs)


def test_a_token(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start_server("--function", "exact_match", "--token-env", "T", env={"T": "right"})
    batch: dict[str, Any] = {"prompts": ["p"], "completions": ["1"], "answer": ["1"]}
    assert RemoteReward(server.url, token="right")(**batch) == [1.0]
    by_name = RemoteReward(server.url, token_env="T")
    with pytest.raises(RewardError, match="the environment variable T is unset or empty"):
        by_name(**batch)
    monkeypatch.setenv("T", "wrong")
    with pytest.raises(RewardError, match="401"):
        by_name(**batch)
    monkeypatch.setenv("T", "right")
    assert by_name(**batch) == [1.0]
    assert b"right" not in pickle.dumps(by_name)
    with pytest.raises(ValueError, match="not both"):
        RemoteReward(server.url, token="x", token_env="T")


def called(reward: RemoteReward, index: int) -> list[float | None]:
    return reward(["p"] * 2, [str(index), "no"], answer=[str(index)] * 2)


def test_threads_and_processes(start_server: StartServer) -> None:
    reward = RemoteReward(start_server("--function", "exact_match", "--workers", "0").url)
    assert called(reward, 0) == [1.0, 0.0]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(called, [reward] * 64, range(64))) == [[1.0, 0.0]] * 64
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as forked:  # with the connection of this process open
        assert list(forked.map(called, [reward] * 8, range(8))) == [[1.0, 0.0]] * 8


def test_the_rewards_of_a_post_process_hook(start_server: StartServer, file: Path) -> None:
    hook = json.dumps({"target": "group_norm", "params": {"std": False}})
    server = start_server(*spec(file, "group", granularity="group"), "--post-process", hook)
    reward, trainer = RemoteReward(server.url, num_generations=2), Trainer()
    assert reward(["p", "p"], ["1", "123"], **trainer.kwargs(2)) == [-1.0, 1.0]
    assert trainer.extra["remote_reward/raw"] == [1.0, 3.0]
    with pytest.raises(RewardError, match="no reward function 'post_process'"):
        RemoteReward(server.url, function="post_process", num_generations=2)(["p", "p"], ["1", "2"])


def train(server: RunningServer, folder: Path, method: str) -> "subprocess.CompletedProcess[str]":
    script = Path(__file__).with_name("trl_with_remote_reward.py")
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, str(script), server.url, str(folder), method]
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=120, check=False)


@pytest.mark.e2e
@pytest.mark.parametrize("method", ["GRPO", "RLOO"])
def test_trls_own_trainers(start_server: StartServer, file: Path, tmp_path: Path, method: str) -> None:
    server = start_server("--function", "accuracy", *spec(file, "tokens"))
    done = train(server, tmp_path / "out", method)
    assert done.returncode == 0, done.stderr
    history = json.loads(done.stdout.splitlines()[-1])
    steps = [entry for entry in history if "rewards/remote_reward/mean" in entry]
    assert len(steps) == 2
    for entry in steps:
        total = entry["remote_reward/accuracy"] + entry["remote_reward/tokens"]
        assert entry["rewards/remote_reward/mean"] == pytest.approx(total, abs=1e-5)
        assert entry["remote_reward/tokens"] < 0
        assert entry["remote_reward/unscored"] == 0.0
    assert server.client().info()["samples_scored"] == 2 * 8
