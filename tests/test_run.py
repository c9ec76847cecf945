"""The main job end to end: real servers, real TRL, real signals. Slow: each run loads torch three times."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from orchestrator.supervise.leases import lease_ports
from rewards.client import RewardClient
from tests.orchestrated import ORCHESTRATE, SMALL, orchestrate, processes_of, read, run_dirs, started, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a short run that saved a checkpoint at step 2."""
    cwd = tmp_path_factory.mktemp("trained")
    # A user's own modules with the names of ours, in the working directory: they must shadow nothing.
    (cwd / "rewards.py").write_text("raise RuntimeError('the user's rewards.py was imported')\n")
    (cwd / "conf").mkdir()
    (cwd / "conf" / "config.yaml").write_text("broken: [\n")
    done = orchestrate(*SMALL, "trainer.args.save_steps=2", cwd=cwd)
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(cwd)
    return run_dir


def test_the_result_names_what_a_user_wants_to_know(trained: Path) -> None:
    result = read(trained / "result.json")
    assert result["code"] == 0
    assert result["final_step"] == 3
    assert 0 <= result["first_reward"] <= 1
    assert set(result["heldout_before"]["sampled"]) == {"reward", "accuracy"}
    assert result["heldout_after"] is not None
    # 3 steps of 16 completions, and twice 10 held-out prompts with 2 sampled and 1 greedy completion each.
    assert result["counts"] == {"samples_scored": 3 * 16 + 2 * 10 * 3, "weight_syncs": 2 + 2 + 1}


def test_the_run_directory_is_whole(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert names >= {
        "config.yaml", "plan.json", "lock.json", "findings.json", "handshake.json", "logs", "metrics.jsonl",
        "samples.jsonl", "checkpoints", "result.json", "model",
    }  # fmt: skip
    samples = [json.loads(line) for line in (trained / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 3 * 16
    assert set(samples[0]) == {"step", "prompt", "completion", "status", "reward", "components"}
    assert all(fact["agrees"] for fact in read(trained / "handshake.json")["facts"])
    assert not list((trained / "weights").iterdir())
    lock = read(trained / "lock.json")
    assert lock["versions"]["trl"]
    assert lock["rewards"]["accuracy"].startswith("sha256:")


def test_metrics_have_reward_and_proven_sync(trained: Path) -> None:
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "reward" in line]
    assert [line["step"] for line in steps] == [1, 2, 3]
    # The shipped recipe proves every sync.
    assert all(line["sync/logprob_gap"] < 1e-4 for line in steps)
    assert all("rewards/accuracy/mean" in line for line in steps)


def test_the_final_model_loads_with_plain_transformers_and_has_learned_something(trained: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(trained / "model")
    start = AutoModelForCausalLM.from_pretrained(read(trained / "plan.json")["steps"][1]["argv"][5])
    AutoTokenizer.from_pretrained(trained / "model")
    moved = [not torch.equal(a, b) for a, b in zip(model.parameters(), start.parameters(), strict=True)]
    assert all(moved)


def test_nothing_is_left_behind(trained: Path) -> None:
    assert processes_of(trained) == []


def test_a_finished_run_is_not_resumed(trained: Path) -> None:
    done = orchestrate("resume", str(trained), cwd=trained.parents[2])
    assert done.returncode == 2
    assert "ended well" in done.stderr


def test_resuming_after_the_last_step_only_ends_the_run(trained: Path) -> None:
    (trained / "result.json").unlink()  # as if the orchestrator had been killed in the last evaluation
    done = orchestrate("resume", str(trained), cwd=trained.parents[2])
    assert done.returncode == 0, done.stderr
    result = read(trained / "result.json")
    assert (result["start_step"], result["final_step"]) == (3, 3)
    assert result["counts"] == {"samples_scored": 10 * 3, "weight_syncs": 2}


def test_resume_goes_on_from_the_last_checkpoint(trained: Path) -> None:
    shutil.rmtree(trained / "checkpoints" / "checkpoint-3")  # as if the run had died in its last step
    (trained / "result.json").unlink()
    before = (trained / "metrics.jsonl").read_text().splitlines()
    done = orchestrate("resume", str(trained), cwd=trained.parents[2])
    assert done.returncode == 0, done.stderr
    result = read(trained / "result.json")
    assert (result["start_step"], result["final_step"]) == (2, 3)
    assert result["counts"] == {"samples_scored": 16 + 10 * 3, "weight_syncs": 2 + 1}
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "reward" in line] == [1, 2, 3]
    # On one process a resumed run is the same run: step 3 has the same rollouts, so the same reward and loss.
    old = [json.loads(line) for line in before]
    again, first = (next(entry for entry in entries if entry["step"] == 3) for entries in (lines, old))
    assert (again["reward"], again["loss"]) == (first["reward"], first["loss"])


def test_rewards_in_the_trainer_are_the_same_rewards(trained: Path, tmp_path: Path) -> None:
    done = orchestrate(
        *SMALL, "reward=inprocess", "reward.functions=[{name: accuracy, target: accuracy}]", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    ours, theirs = ((path / "samples.jsonl").read_text() for path in (run_dir, trained))
    assert ours == theirs


OWN_REWARD = """
def shorter(prompts, completions, answer, scale=1.0, **kwargs):
    print("a print must not break the protocol")
    return [-scale * len(completion[0]["content"]) for completion in completions]
"""


def test_a_reward_function_and_data_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_REWARD)
    rows = [{"question": f"{a}+{b}=", "gold": str(a + b)} for a in range(5) for b in range(5)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = orchestrate(
        *SMALL,
        "data=jsonl", "data.path=rows.jsonl", "data.rows=null", "data.heldout_path=rows.jsonl", "data.prompt=question",
        "data.columns={answer: gold}",
        "reward.functions=[{name: accuracy, target: accuracy, weight: 2.0},"
        " {name: shorter, target: 'mine.py:shorter', weight: 0.5, params: {scale: 0.1}}]",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    for line in (run_dir / "samples.jsonl").read_text().splitlines():
        sample = json.loads(line)
        parts = sample["components"]
        assert sample["reward"] == pytest.approx(2.0 * parts["accuracy"] + 0.5 * parts["shorter"])
        assert parts["shorter"] == pytest.approx(-0.1 * len(sample["completion"][0]["content"]))


def test_a_reward_function_that_breaks_ends_the_run_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(prompts, completions, **kwargs):\n    return [1.0]\n")
    done = orchestrate(*SMALL, "reward.functions.0.target=mine.py:score", "evaluation.rows=0", cwd=tmp_path)
    assert done.returncode == 1
    assert "16" in done.stderr
    assert "accuracy" in done.stderr
    assert str(run_dirs(tmp_path)[0] / "logs" / "trainer.log") in done.stderr


def test_a_long_prompt_ends_the_run_before_it_trains(tmp_path: Path) -> None:
    done = orchestrate(*SMALL, "limits.prompt_length=5", cwd=tmp_path)
    assert done.returncode == 1
    assert "limits.prompt_length = 5" in done.stderr
    assert not (run_dirs(tmp_path)[0] / "metrics.jsonl").exists()


def _phase(run_dir: Path) -> str:
    if (run_dir / "metrics.jsonl").is_file():
        return "training"
    return "starting" if (run_dir / "processes.json").is_file() else "before"


@pytest.mark.parametrize("phase", ["starting", "training"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_everything(tmp_path: Path, phase: str, number: signal.Signals, code: int) -> None:
    process = started(*SMALL, "trainer.args.max_steps=2000", cwd=tmp_path)
    wait_for(phase, lambda: any(_phase(d) == phase for d in run_dirs(tmp_path)) or process.poll() is not None, 90)
    (run_dir,) = run_dirs(tmp_path)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=5)
    assert process.returncode == code, stderr
    assert processes_of(run_dir) == []


def test_a_killed_orchestrator_leaves_nothing(tmp_path: Path) -> None:
    process = started(*SMALL, "trainer.args.max_steps=2000", cwd=tmp_path)
    wait_for(
        "training", lambda: any(_phase(d) == "training" for d in run_dirs(tmp_path)) or process.poll() is not None, 90
    )
    (run_dir,) = run_dirs(tmp_path)
    assert len(processes_of(run_dir)) >= 4  # reward server and its worker, generation server, trainer
    process.kill()
    wait_for("every process of the run is gone", lambda: processes_of(run_dir) == [], 5)
    process.communicate()


def test_two_runs_of_one_second_both_succeed(tmp_path: Path) -> None:
    pair = [started(*SMALL, cwd=tmp_path) for _ in range(2)]
    ended = [process.communicate(timeout=280) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], ended
    assert len(run_dirs(tmp_path)) == 2


@contextmanager
def stranger(port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(
            "the stranger listens",
            lambda: any(c.laddr.port == port for c in psutil.Process(process.pid).net_connections()),
        )
        yield process
    finally:
        process.kill()
        process.wait(5)


def test_a_strangers_server_is_named_and_left_alone(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with stranger(port) as process:
        done = orchestrate(*SMALL, f"generation.port={port}", cwd=tmp_path, timeout_s=20)
        assert done.returncode == 2
        assert f"pid {process.pid}" in done.stderr
        assert "http.server" in done.stderr
        assert process.poll() is None
    assert run_dirs(tmp_path) == []


def test_a_sweep_is_checked_first_and_compared_last(tmp_path: Path) -> None:
    bad = orchestrate("-m", *SMALL, "limits.generations=8,7", cwd=tmp_path)
    assert bad.returncode == 2
    assert "NUM001" in bad.stderr
    assert run_dirs(tmp_path) == []
    done = orchestrate("-m", *SMALL, "trainer.args.learning_rate=1e-4,3e-4", cwd=tmp_path, timeout_s=280)
    assert done.returncode == 0, done.stderr
    assert len(run_dirs(tmp_path)) == 2
    table = done.stdout.split("what differs")[-1]
    assert "trainer.args.learning_rate=0.0001" in table
    assert "trainer.args.learning_rate=0.0003" in table
    (saved,) = (tmp_path / "runs" / "grpo_math" / "sweeps").glob("*/sweep.json")
    assert [row["code"] for row in read(saved)] == [0, 0]


def test_a_token_from_the_environment_guards_the_reward_server(tmp_path: Path) -> None:
    done = orchestrate(*SMALL, "reward.token_env=REWARD_TOKEN", cwd=tmp_path, env={"REWARD_TOKEN": "s3cret-value"})
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    written = [p for p in run_dir.rglob("*") if p.is_file() and p.suffix in (".json", ".yaml", ".log", ".jsonl")]
    assert not [p for p in written if "s3cret-value" in p.read_text()]
    assert os.environ.get("REWARD_TOKEN") is None


def test_a_killed_trainer_fails_the_run_and_is_named(tmp_path: Path) -> None:
    process = started(*SMALL, "trainer.args.max_steps=2000", cwd=tmp_path)
    wait_for("training", lambda: any(_phase(d) == "training" for d in run_dirs(tmp_path)), 90)
    (run_dir,) = run_dirs(tmp_path)
    psutil.Process(_pid_of(run_dir, "trainer")).kill()
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "failed: trainer" in stderr
    assert str(run_dir / "logs" / "trainer.log") in stderr
    assert processes_of(run_dir) == []


def test_a_reward_server_that_dies_is_started_again_when_asked_for(tmp_path: Path) -> None:
    process = started(*SMALL, "trainer.args.max_steps=60", "supervision.restarts=1", cwd=tmp_path)
    wait_for("training", lambda: any(_phase(d) == "training" for d in run_dirs(tmp_path)), 90)
    (run_dir,) = run_dirs(tmp_path)
    psutil.Process(_pid_of(run_dir, "reward")).kill()
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "reward restart" in stderr
    # The new server cannot know what the old one scored: not compared, and shown as unknown.
    assert read(run_dir / "result.json")["counts"]["samples_scored"] is None
    assert "samples_scored -" in stdout


def _pid_of(run_dir: Path, name: str) -> int:
    return int(next(p["pid"] for p in read(run_dir / "processes.json")["processes"] if p["name"] == name))


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


def test_a_run_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = orchestrate(*SMALL, "runs_dir=taken", cwd=tmp_path, timeout_s=20)
    assert done.returncode == 1
    assert "runs_dir = taken" in done.stderr
    assert "Traceback" not in done.stderr


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


def test_a_function_of_a_group_and_one_that_reads_token_ids(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def best(prompts, completions, **kwargs):\n"
        "    assert len(completions) == 8, len(completions)\n"
        "    longest = max(len(c[0]['content']) for c in completions)\n"
        "    return [float(len(c[0]['content']) == longest) for c in completions]\n"
        "def tokens(prompts, completions, completion_ids, **kwargs):\n"
        "    return [-float(len(ids)) for ids in completion_ids]\n"
    )
    best = "{name: best, target: 'mine.py:best', granularity: group}"
    functions = f"reward.functions=[{best}, {{name: tokens, target: 'mine.py:tokens'}}]"
    done = orchestrate(*SMALL, functions, "evaluation.rows=0", cwd=tmp_path)
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


def test_a_closed_pipe_ends_neither_the_run_nor_its_exit_code(tmp_path: Path) -> None:
    words = " ".join([str(ORCHESTRATE), *SMALL])
    done = subprocess.run(["bash", "-c", f"{words} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}"], cwd=tmp_path, timeout=120)
    assert done.returncode == 0
    assert read(run_dirs(tmp_path)[0] / "result.json")["code"] == 0
