"""Reward servers that say something else than the recipe means: the real server with other flags, and a wedged one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from talking import (
    differing,
    facts_of,
    odd_server,
    recipe,
    reward_server,
    shake,
    skipped,
    vllm_shaped,
)

from orchestrator.data.facts import describe
from orchestrator.schema import PostProcessConfig, RewardFunctionConfig, RunConfig
from orchestrator.supervise.handshake import handshake
from rewards.client import RewardClient
from tests.orchestrated import read

ACCURACY = ("--function", "accuracy")


def external(port: int, **more: object) -> dict[str, object]:
    return {"kind": "external", "url": f"http://127.0.0.1:{port}", "port": port, **more}


def asked(port: int, folder: Path, **more: object) -> tuple[str, dict[str, Any]]:
    """The problem ("" for none) and what was written down, of a recipe with the function accuracy."""
    verdict, written = shake(recipe(reward=external(port, **more)), folder)
    return verdict.problem or "", written


def test_a_server_that_agrees(tmp_path: Path, ports: list[int]) -> None:
    with reward_server(ports[0], *ACCURACY):
        problem, written = asked(ports[0], tmp_path)
        assert problem == ""
        assert [fact["name"] for fact in written["facts"]] == [
            "reward: protocol", "reward: dialect", "reward: on_error", "reward: samples in one request",
            "reward: functions", "reward: accuracy: weight", "reward: accuracy: key", "reward: accuracy: eval_key",
            "reward: accuracy: params", "reward: accuracy: only", "reward: accuracy: target",
            "reward: accuracy: source", "reward: accuracy: columns", "reward: accuracy: self-test",
            "reward: scores an empty batch", "reward: scores a sample",
            "reward: who listens (before and after the questions)",
        ]  # fmt: skip
        assert skipped(written) == ["reward: version"]
        assert written["services"]["reward"]["samples_scored"] == 1
        assert RewardClient(f"http://127.0.0.1:{ports[0]}").info()["samples_scored"] == 1
        by_name = recipe(reward={"kind": "external", "url": f"http://localhost:{ports[0]}"})
        assert shake(by_name, tmp_path)[0].problem is None


def test_everything_that_differs_is_said_at_once(tmp_path: Path, ports: list[int]) -> None:
    other = json.dumps({"name": "accuracy", "target": "exact_match", "weight": 2.0})
    flags = ("--function", other, "--function", "format", "--on-error", "mask", "--max-batch", "4")
    with reward_server(ports[0], *flags):
        problem, written = asked(ports[0], tmp_path)
    assert differing(written) == [
        "reward: on_error", "reward: samples in one request", "reward: functions", "reward: accuracy: weight",
        "reward: accuracy: target", "reward: accuracy: source",
    ]  # fmt: skip
    assert "reward: functions: the recipe means ['accuracy'], http" in problem
    assert "says ['accuracy', 'format']" in problem
    assert "the recipe means 1.0" in problem
    assert "It runs other code than " in problem
    assert "fix: restart it with --max-batch 8" in problem


def test_a_function_is_missing(tmp_path: Path, ports: list[int]) -> None:
    with reward_server(ports[0], "--function", "format"):
        problem, written = asked(ports[0], tmp_path)
    assert differing(written) == ["reward: functions"]
    assert "says ['format']" in problem


def test_shape_and_eval_key(tmp_path: Path, ports: list[int]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "async def score(args, sample):\n"
        "    assert len(sample.tokens) == sample.response_length, sample\n"
        "    return {'train': 1.0, 'held': 0.0}\n"
    )
    spec = {"name": "mine", "target": f"{mine}:score", "key": "train"}
    functions = [RewardFunctionConfig(**spec, shape="vime_sample", eval_key="held")]
    with reward_server(ports[0], "--function", json.dumps(spec | {"eval_key": "held"})):
        assert asked(ports[0], tmp_path, functions=functions)[0] == ""
        others = [RewardFunctionConfig(**spec, shape="trl", only={"source": ["x"]})]
        _, written = asked(ports[0], tmp_path, functions=others)
        assert differing(written) == ["reward: mine: eval_key", "reward: mine: only", "reward: mine: shape"]


HOOK = """
def halved(rewards, group_ids, x, **kwargs):
    assert group_ids == [0] * 8, group_ids
    return rewards, [reward / 2 for reward in rewards]
"""


def test_the_post_process_hook(tmp_path: Path, ports: list[int]) -> None:
    mine = tmp_path / "hook.py"
    mine.write_text(HOOK)
    said = {"target": f"{mine}:halved", "params": {"x": 1}}
    wanted = PostProcessConfig(**said)
    with reward_server(ports[0], *ACCURACY, "--post-process", json.dumps(said)):
        problem, written = asked(ports[0], tmp_path, post_process=wanted)
        assert (problem, differing(written)) == ("", [])
        assert {f"reward: post_process{more}" for more in ("", ": params", ": target", ": source", ": columns")} < {
            fact["name"] for fact in written["facts"]
        }
        problem, written = asked(ports[0], tmp_path)
        assert differing(written) == ["reward: post_process"]
        assert f"reward.post_process.target={mine}:halved" in problem
        problem, written = asked(ports[0], tmp_path, post_process=PostProcessConfig(target="group_norm"))
        assert differing(written) == [
            "reward: post_process: params", "reward: post_process: target", "reward: post_process: source"
        ]  # fmt: skip
    with reward_server(ports[1], *ACCURACY):
        problem, written = asked(ports[1], tmp_path, post_process=wanted)
        assert differing(written) == ["reward: post_process"]
        assert "the recipe means" in problem
        assert "says 'none'" in problem


def test_a_file_that_changed_since_the_server_started(tmp_path: Path, ports: list[int]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def score(completions, **kwargs):\n    return [1.0] * len(completions)\n")
    functions = [RewardFunctionConfig(name="mine", target=f"{mine}:score")]
    function = json.dumps({"name": "mine", "target": f"{mine}:score"})
    with reward_server(ports[0], "--function", function):
        assert asked(ports[0], tmp_path, functions=functions)[0] == ""
        mine.write_text(mine.read_text().replace("1.0", "0.0"))
        problem, written = asked(ports[0], tmp_path, functions=functions)
        assert differing(written) == ["reward: mine: source"]
        assert "It runs other code" in problem
        elsewhere = [RewardFunctionConfig(name="mine", target="/not/here.py:score")]
        problem, written = asked(ports[0], tmp_path, functions=elsewhere)
        assert problem == ""
        assert "reward: mine: source" in skipped(written)


def test_a_column_that_the_data_lack(tmp_path: Path, ports: list[int]) -> None:
    run = recipe(reward=external(ports[0]))
    rows = [{"prompt": "1+1=", "gold": "2"}]
    with reward_server(ports[0], *ACCURACY):
        verdict, written = shake(run, tmp_path)
        assert verdict.problem is None
        verdict, written = _with_rows(run, tmp_path, rows)
    assert differing(written) == ["reward: accuracy: columns"]
    assert "it wants answer, and the data have gold" in str(verdict)
    assert "data.columns.answer=" in str(verdict)
    assert "reward: scores a sample" in skipped(written)


def _with_rows(run: RunConfig, folder: Path, rows: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    verdict = handshake(run, folder, replace(facts_of(run), data=describe(rows)))
    return verdict.problem or "", read(folder / "handshake.json")


@pytest.mark.parametrize(
    ("recipe_names", "exported", "words"),
    [
        (None, None, "and the recipe names none"),
        ("MY_TOKEN", None, "and MY_TOKEN is unset or empty here"),
        ("MY_TOKEN", "wrong", "and the one in MY_TOKEN is another"),
    ],
)
def test_a_token(
    tmp_path: Path,
    ports: list[int],
    monkeypatch: pytest.MonkeyPatch,
    recipe_names: str | None,
    exported: str | None,
    words: str,
) -> None:
    with reward_server(ports[0], *ACCURACY, "--token-env", "MY_TOKEN", env={"MY_TOKEN": "right"}):
        if exported:
            monkeypatch.setenv("MY_TOKEN", exported)
        problem, written = asked(ports[0], tmp_path, token_env=recipe_names)
        assert differing(written) == ["reward: token"]
        assert words in problem
        assert "401 on /info" in problem
        monkeypatch.setenv("MY_TOKEN", "right")
        problem, written = asked(ports[0], tmp_path, token_env="MY_TOKEN")
        assert problem == ""
        assert "right" not in (tmp_path / "handshake.json").read_text().replace("right example", "")


def test_a_wedged_scorer_is_not_ready(tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.supervise.handshake.reward.QUESTION_TIMEOUT_S", 1.0)
    with odd_server("wedged-reward", ports[0]):
        assert RewardClient(f"http://127.0.0.1:{ports[0]}").health()
        problem, written = asked(ports[0], tmp_path)
    assert differing(written) == ["reward: scores an empty batch"]
    assert "answers /health and /info, but not a request for scores" in problem
    assert "it is wedged" in problem


def test_workers_that_hang_on_real_work(tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.supervise.handshake.reward.QUESTION_TIMEOUT_S", 2.5)
    with odd_server("wedged-workers", ports[0]):
        problem, written = asked(ports[0], tmp_path, timeout_s=0.1)
        assert differing(written) == ["reward: scores a sample"]
        assert "it is wedged" in problem
        # A function that may take that long is no proof of a fault.
        problem, written = asked(ports[0], tmp_path, timeout_s=10.0)
        assert problem == ""
        assert "reward: scores a sample" in skipped(written)


def test_what_a_function_makes_of_a_sample_is_a_warning(tmp_path: Path, ports: list[int]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def score(completions, **kwargs):\n    return [float(kwargs['solution'][0])]\n")
    functions = [RewardFunctionConfig(name="mine", target=f"{mine}:score")]
    with reward_server(ports[0], "--function", json.dumps({"name": "mine", "target": f"{mine}:score"})):
        verdict, written = shake(recipe(reward=external(ports[0], functions=functions)), tmp_path)
    assert verdict.problem is None
    assert "mine raised KeyError" in str(verdict.warning)
    assert written["agreed"] is True
    assert differing(written) == ["reward: scores a sample"]


def test_a_group_function_gets_a_whole_group(tmp_path: Path, ports: list[int]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def score(prompts, completions, answer, completion_ids, **kwargs):\n"
        "    assert [len(completions), len(answer), len(completion_ids)] == [8, 8, 8]\n"
        "    assert completions[0][0]['role'] == 'assistant'\n"
        "    return [0.0] * 8\n"
    )
    functions = [RewardFunctionConfig(name="mine", target=f"{mine}:score", granularity="group")]
    function = json.dumps({"name": "mine", "target": f"{mine}:score", "granularity": "group"})
    with reward_server(ports[0], "--function", function):
        verdict, written = shake(recipe(reward=external(ports[0], functions=functions)), tmp_path)
    assert (verdict.problem, verdict.warning) == (None, None)
    assert written["services"]["reward"]["samples_scored"] == 8


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("get-reward", "an OpenRLHF or Align-Anything reward server"),
        ("web", "answered 200 with something that is not JSON"),
        ("trl", "is the `trl vllm-serve` of an older TRL"),
    ],
)
def test_what_is_no_reward_server(tmp_path: Path, ports: list[int], kind: str, words: str) -> None:
    with odd_server(kind, ports[0]):
        problem, written = asked(ports[0], tmp_path)
    assert differing(written) == ["reward: server"]
    assert words in problem


def test_the_two_addresses_are_swapped(tmp_path: Path, ports: list[int]) -> None:
    with vllm_shaped(ports[0]), reward_server(ports[1], *ACCURACY):
        swapped = recipe(external(ports[1]), external(ports[0]))
        verdict, written = shake(swapped, tmp_path)
    assert differing(written) == ["reward: server", "generation: server"]
    assert f"what answers at http://127.0.0.1:{ports[0]} is vLLM 0.32.0" in str(verdict.problem)
    assert f"what answers at http://127.0.0.1:{ports[1]} is a reward server of orchestrate" in str(verdict.problem)


def test_nobody_is_there(tmp_path: Path, ports: list[int]) -> None:
    problem, written = asked(ports[0], tmp_path)
    assert differing(written) == ["reward: server"]
    assert f"nothing listens on http://127.0.0.1:{ports[0]} (connection refused)" in problem
    assert "reward=local" in problem


def test_services_inside_the_trainer_are_not_asked(tmp_path: Path) -> None:
    for kind in ("inprocess", "colocate"):
        verdict, written = shake(recipe({"kind": kind}), tmp_path)
        assert verdict.problem is None
        assert written["services"] == {}
