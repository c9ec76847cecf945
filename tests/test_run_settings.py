"""Runs with other settings than the shipped ones: each counts right and proves its sync, or says what is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.supervise.leases import lease_ports
from rewards.client import RewardClient
from tests.orchestrated import SMALL, orchestrate, read, run_dirs, wait_for

pytestmark = pytest.mark.e2e


def test_a_token_from_the_environment_guards_the_reward_server(tmp_path: Path) -> None:
    done = orchestrate(*SMALL, "reward.token_env=REWARD_TOKEN", cwd=tmp_path, env={"REWARD_TOKEN": "s3cret-value"})
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    written = [p for p in run_dir.rglob("*") if p.is_file() and p.suffix in (".json", ".yaml", ".log", ".jsonl")]
    assert not [p for p in written if "s3cret-value" in p.read_text()]
    assert os.environ.get("REWARD_TOKEN") is None


def test_a_reward_server_that_somebody_else_runs(tmp_path: Path) -> None:
    with lease_ports(1)[0] as lease:
        url = f"http://127.0.0.1:{lease.port}"
        argv = [sys.executable, "-P", "-m", "rewards.server", "--port", str(lease.port), "--function", "accuracy"]
        server = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        try:
            wait_for("the reward server is ready", RewardClient(url, timeout_s=5).health)
            external = ("reward=external", f"reward.url={url}")
            mistaken = orchestrate(*SMALL, *external, "reward.functions=[{name: mine, target: accuracy}]", cwd=tmp_path)
            assert mistaken.returncode == 3
            assert "reward: functions: the recipe means ['mine']" in mistaken.stderr
            done = orchestrate(*SMALL, *external, "reward.functions=[{name: accuracy, target: accuracy}]", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert server.poll() is None
        finally:
            server.kill()
            server.wait(5)


def test_trls_own_evaluation_is_counted_and_stays_out_of_the_samples(tmp_path: Path) -> None:
    evaluation = (
        "trainer.args.eval_strategy=steps",
        "trainer.args.eval_steps=2",
        "trainer.args.per_device_eval_batch_size=16",
    )
    generation = ("trainer.args.steps_per_generation=2", "trainer.args.beta=0.01")
    done = orchestrate(*SMALL, *evaluation, *generation, "trainer.args.max_steps=5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    # 3 rounds of 2 x 16 completions, evaluations of 10 x 8 after steps 2, 4 and 5, and ours: 2 x 10 x (2 + 1).
    assert read(run_dir / "result.json")["counts"]["samples_scored"] == 3 * 32 + 3 * 80 + 60
    samples = (run_dir / "samples.jsonl").read_text().splitlines()
    assert len(samples) == 3 * 32


def test_masked_samples_are_counted_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def score(prompts, completions, answer, **kwargs):\n"
        "    return [1.0 / (len(completions[0][0]['content']) - 1)]\n"  # one character: division by zero
    )
    function = "reward.functions=[{name: mine, target: 'mine.py:score', granularity: sample}]"
    done = orchestrate(*SMALL, "reward.on_error=mask", function, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    samples = [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]
    masked = [sample for sample in samples if sample["reward"] is None]
    assert masked
    assert all(len(sample["completion"][0]["content"]) == 1 for sample in masked)
    assert read(run_dir / "result.json")["unscored"] == {"masked": len(masked), "failed": 0, "aborted": 0}
    steps = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert sum(step.get("samples/masked", 0.0) for step in steps) == len(masked)
    assert f"unscored  {len(masked)} masked, 0 failed, 0 aborted" in done.stdout


def test_a_function_of_a_group_and_one_that_reads_token_ids(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def best(prompts, completions, **kwargs):\n"
        "    assert len(completions) in (8, 1), len(completions)\n"
        "    longest = max(len(c[0]['content']) for c in completions)\n"
        "    return [float(len(c[0]['content']) == longest) for c in completions]\n"
        "def tokens(prompts, completions, completion_ids, **kwargs):\n"
        "    return [-float(len(ids)) for ids in completion_ids]\n"
    )
    best = "{name: best, target: 'mine.py:best', granularity: group}"
    functions = f"reward.functions=[{best}, {{name: tokens, target: 'mine.py:tokens'}}]"
    done = orchestrate(*SMALL, functions, "evaluation.samples=8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    samples = [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]
    assert all(-9 <= sample["components"]["tokens"] <= -1 for sample in samples)


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(("model.dtype=bfloat16",), id="bfloat16-weights"),
        pytest.param(("trainer.args.bf16=true", "trainer.args.use_cpu=true"), id="bfloat16-autocast"),
        pytest.param(
            ("trainer.args.max_steps=-1", "trainer.args.num_train_epochs=1", "data.rows=11",
             "trainer.args.generation_batch_size=64", "trainer.args.gradient_accumulation_steps=3"),
            id="an-epoch-that-ends-in-half-a-step",
        ),
        pytest.param(("data.chat=false", "trainer.args.num_iterations=2", "trainer.args.beta=0.05"), id="text-prompts"),
    ],
)  # fmt: skip
def test_a_run_with_other_settings_counts_and_proves(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    done = orchestrate(*SMALL, *overrides, "evaluation.rows=0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_dropping_every_prompt_is_no_success(tmp_path: Path) -> None:
    done = orchestrate(*SMALL, "data.long_prompts=drop", "limits.prompt_length=5", cwd=tmp_path)
    assert done.returncode == 1
    assert "3200 were dropped" in done.stderr


def test_what_trl_refuses_is_one_sentence(tmp_path: Path) -> None:
    done = orchestrate(*SMALL, "trainer.args.bf16=true", cwd=tmp_path)  # without use_cpu, on a machine without a GPU
    assert done.returncode == 1
    assert "GRPOConfig refuses trainer.args" in done.stderr
    assert "use_cpu" in done.stderr
    assert "Traceback" not in done.stderr
