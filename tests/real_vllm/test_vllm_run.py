"""The shipped recipe with the real vLLM, from check to tear-down: generation=vllm_cpu."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.generation.generation_servers import Target, vllm_python
from tests.orchestrated import orchestrate, processes_of, read, run_dirs

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

NUM_STEPS = 50
SHORT = ("+experiment=grpo_math", "trainer.args.max_steps=2")
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run directory, and what the run printed."""
    cwd = tmp_path_factory.mktemp("trained")
    before = set(SHARED_MEMORY.iterdir())
    done = orchestrate(
        "+experiment=grpo_math",
        "generation=vllm_cpu",
        f"generation.python={vllm_python()}",
        "generation.env.OMP_NUM_THREADS=1",
        f"trainer.args.max_steps={NUM_STEPS}",
        cwd=cwd,
        timeout_s=500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert set(SHARED_MEMORY.iterdir()) <= before
    (run_dir,) = run_dirs(cwd)
    return run_dir, done.stdout


def steps_of(run_dir: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "reward" in line]


def test_the_reward_rises(trained: tuple[Path, str]) -> None:
    rewards = [step["reward"] for step in steps_of(trained[0])]
    assert len(rewards) == NUM_STEPS
    assert statistics.mean(rewards[-10:]) > statistics.mean(rewards[:10]) + 0.1


def test_every_sync_is_proven(trained: tuple[Path, str], gaps: dict[str, float]) -> None:
    """The shipped recipe compares at every step, and the tolerance in float32 is 1e-3."""
    proofs = [step["sync/logprob_gap"] for step in steps_of(trained[0])]
    gaps[f"trainer and vLLM after each of {len(proofs)} syncs"] = max(proofs)
    assert len(proofs) == NUM_STEPS
    assert max(proofs) < 1e-4


def test_the_services_agreed_and_the_counts_too(trained: tuple[Path, str]) -> None:
    run_dir, printed = trained
    written = read(run_dir / "handshake.json")
    assert written["agreed"] is True
    (engine,) = [fact for fact in written["facts"] if fact["name"] == "generation: engine"]
    assert (engine["said"], engine["agrees"]) == ("vllm", True)
    assert read(run_dir / "result.json")["counts"]["samples_scored"] > NUM_STEPS * 128
    assert "as the steps imply" in printed


def test_every_completion_is_within_its_limits(trained: tuple[Path, str]) -> None:
    samples = [json.loads(line) for line in (trained[0] / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == NUM_STEPS * 128
    assert {sample["status"] for sample in samples} <= {"completed", "truncated"}


def test_nothing_is_left(trained: tuple[Path, str]) -> None:
    run_dir, _ = trained
    assert processes_of(run_dir) == []
    assert not (run_dir / "weights").is_symlink()  # nor a folder; what it led to is looked for above
    assert not (run_dir / "weights").exists()


def test_a_server_without_our_plugin_is_refused_before_the_trainer_starts(plain: Target, tmp_path: Path) -> None:
    done = orchestrate(*SHORT, "generation=external", f"generation.url={plain.base_url}", cwd=tmp_path)
    assert done.returncode == 3
    said = done.stdout + done.stderr
    assert "generation: weight transfer: the recipe means 'safetensors'" in said
    assert "It was started without a weight-transfer engine" in said
    assert "trainer started" not in said
    assert plain.process.poll() is None


def test_a_server_that_reads_from_another_folder_is_refused_and_left_alone(vllm: Target, tmp_path: Path) -> None:
    done = orchestrate(*SHORT, "generation=external", f"generation.url={vllm.base_url}", cwd=tmp_path)
    assert done.returncode == 1
    assert "takes no weights from" in done.stdout + done.stderr
    assert vllm.process.poll() is None
