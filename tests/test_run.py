"""The main job end to end: real servers, real TRL. Slow: each run loads torch three times."""

import json
import shutil
from pathlib import Path

import pytest

from tests.orchestrated import SMALL, orchestrate, processes_of, read, run_dirs

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
    assert not (trained / "weights").exists()  # nor the shared memory that it led to
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
    """The first run finds out when it has counted; from then on the check knows."""
    done = orchestrate(*SMALL, "limits.prompt_length=5", cwd=tmp_path)
    assert done.returncode == 1
    assert "limits.prompt_length = 5" in done.stderr
    assert not (run_dirs(tmp_path)[0] / "metrics.jsonl").exists()
    again = orchestrate(*SMALL, "limits.prompt_length=5", cwd=tmp_path)
    assert again.returncode == 2
    assert "LEN006" in again.stderr
    assert len(run_dirs(tmp_path)) == 1


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
