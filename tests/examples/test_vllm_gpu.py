"""examples/vllm_gpu without GPUs and hub: the recipes' check and plan, the rows, the verdict, the one command."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launchers.context import Context
from orchestrator.assets import TINY_MATH
from orchestrator.compose import Composer
from orchestrator.jobs import check_job
from orchestrator.plan import make_plan
from orchestrator.turns import devices

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "vllm_gpu"
sys.path.insert(0, str(EXAMPLE))

import prepare  # noqa: E402
import verdict  # noqa: E402

RECIPES = {"grpo_gsm8k_vllm": 2, "grpo_gsm8k_colocate": 1, "grpo_gsm8k_lora": 2, "gsm8k": 2}
"""Recipe -> GPUs that it takes."""
EXAMPLES = [
    {"question": "Ann has 3 pens and buys 4. How many?", "answer": "She has 3+4=<<3+4=7>>7 pens.\n#### 7"},
    {"question": "A farm sells 1,200 eggs at $2. How much?", "answer": "1,200*2=2,400. Not #1.\n#### 2,400"},
]
"""As GSM8K writes them."""


def test_rows_of_gsm8k_become_prompt_and_gold_answer() -> None:
    first, second = map(prepare.as_row, EXAMPLES)
    assert first["prompt"].startswith("Ann has 3 pens and buys 4. How many?\n")
    assert "\\boxed{}" in first["prompt"]
    assert (first["answer"], second["answer"]) == ("7", "2400")
    with pytest.raises(ValueError, match="no number after ####"):
        prepare.as_row({"question": "How many?", "answer": "Seven."})


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a recipe reads from, with data and without a model."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "gsm8k"
    folder.mkdir()
    prepare.write_rows(folder / "train.jsonl", EXAMPLES * 1000)
    prepare.write_rows(folder / "heldout.jsonl", EXAMPLES * 125)
    return folder


@pytest.mark.parametrize(("name", "gpus"), RECIPES.items())
def test_a_recipe_passes_the_check_and_gives_each_part_gpus_of_its_own(prepared: Path, name: str, gpus: int) -> None:
    machine = [f"hardware.gpus={gpus}", "hardware.gpu_memory_gib=80", "hardware.cpus=16"]
    job = check_job(Composer(str(EXAMPLE / "recipes")), [f"+experiment={name}", *machine])
    assert [(f.code, f.problem) for f in job.findings if f.severity in ("error", "warning")] == []
    assert not job.run.ignore
    plan = make_plan(job.run, Context(run_dir=prepared, devices=devices(job.run, job.facts, None)))
    seen = {step.name: step.env.get("CUDA_VISIBLE_DEVICES") for step in plan.steps}
    assert seen["trainer"] == "0"
    assert seen.get("generation") == (None if gpus == 1 else "1")


def test_nothing_is_prepared_until_all_of_it_is(prepared: Path) -> None:
    assert not prepare.is_prepared(prepared)
    shutil.copytree(TINY_MATH, prepared / "model")
    assert prepare.is_prepared(prepared)
    (prepared / "heldout.jsonl").unlink()
    assert not prepare.is_prepared(prepared)


# What a run of grpo_math over four steps left, cut down to what the verdict reads.
RESULT = {
    "code": 0, "final_step": 4, "reward_window": 2, "first_reward": 0.55, "last_reward": 0.6875, "logprob_gap": 2.1e-6,
    "heldout_before": {"sampled": {"accuracy": 0.35}, "greedy": {"accuracy": 0.8}, "num_scored": 30},
    "heldout_after": {"sampled": {"accuracy": 0.4}, "greedy": {"accuracy": 0.9}, "num_scored": 30},
}  # fmt: skip
METRICS = [{"step": 1, "reward": 0.5, "sync/logprob_gap": 1.9e-6}, {"step": 2, "reward": 0.6}]


@pytest.fixture
def left_behind(tmp_path: Path) -> Callable[..., Path]:
    def write(run_id: str = "no-process-has-this", **changes: Any) -> Path:
        (tmp_path / "result.json").write_text(json.dumps(RESULT | changes))
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in METRICS))
        (tmp_path / "processes.json").write_text(json.dumps({"run_id": run_id}))
        (tmp_path / "lock.json").write_text(json.dumps({"versions": {"trl": "1.16.0"}, "hardware": {"gpus": ["H100"]}}))
        return tmp_path

    return write


def test_a_good_run_passes_and_says_what_it_was_made_of(left_behind: Callable[..., Path]) -> None:
    folder = left_behind()
    said = verdict.as_json("vllm", folder, verdict.judge(folder, 0))
    assert said["verdict"] == "PASS"
    assert "2.1e-06 nats" in next(check["figures"] for check in said["checks"] if "sync" in check["name"])
    assert (said["versions"], said["hardware"]) == ({"trl": "1.16.0"}, {"gpus": ["H100"]})


@pytest.mark.parametrize(
    ("changes", "code", "fails"),
    [
        ({"last_reward": 0.5}, 0, "reward rises"),
        ({"first_reward": None}, 0, "reward rises"),
        ({"heldout_after": {"greedy": {"accuracy": 0.7}}}, 0, "held-out accuracy does not fall"),
        ({"heldout_after": None}, 0, "held-out accuracy"),
        ({}, 1, "exit code"),
    ],
)
def test_one_check_fails(left_behind: Callable[..., Path], changes: dict[str, Any], code: int, fails: str) -> None:
    checks = verdict.judge(left_behind(**changes), code)
    assert [check.name for check in checks if not check.holds] == [fails]


def test_a_sync_that_was_never_compared_proves_nothing(left_behind: Callable[..., Path]) -> None:
    folder = left_behind(logprob_gap=None)
    (folder / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    assert [check.name for check in verdict.judge(folder, 0) if not check.holds] == [
        "every proof of a weight sync holds"
    ]


def test_a_process_that_is_left_is_named(left_behind: Callable[..., Path]) -> None:
    env = os.environ | {"ORCHESTRATE_RUN_ID": "left-by-a-test"}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=env) as child:
        try:
            checks = verdict.judge(left_behind(run_id="left-by-a-test"), 0)
        finally:
            child.kill()
    (left,) = [check for check in checks if not check.holds]
    assert (left.name, left.figures) == ("nothing left running", str(child.pid))


def test_a_run_that_never_began_fails() -> None:
    said = verdict.as_json("vllm", None, verdict.judge(None, 2))
    assert (said["verdict"], said["checks"]) == ("FAIL", [{"name": "exit code", "holds": False, "figures": "2"}])


@pytest.mark.e2e
def test_the_one_command_trains_and_judges(tmp_path: Path) -> None:
    """The shipped model and the embedded server in the place of what is not here; the rest is the command's own."""
    folder = tmp_path / "gsm8k"
    folder.mkdir()
    shutil.copytree(TINY_MATH, folder / "model")
    rows = [json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) for a in range(30) for b in range(30)]
    (folder / "train.jsonl").write_text("\n".join(rows))
    (folder / "heldout.jsonl").write_text("\n".join(rows[::9]))
    here = [
        "generation=embedded", "generation.gpus=null", "launcher.gpus=null", "generation.dtype=float32",
        "trainer.args.bf16=false", "trainer.args.max_steps=6", "trainer.args.warmup_steps=0",
        "trainer.args.per_device_train_batch_size=64", "trainer.args.gradient_accumulation_steps=1",
        "trainer.args.learning_rate=3e-4", "limits.prompt_length=16", "limits.completion_length=8",
        "evaluation.rows=50", "supervision.stop_grace_s=3", "generation.weight_sync.verify_every=1",
    ]  # fmt: skip
    command = [sys.executable, str(EXAMPLE / "run.py"), "vllm", "--folder", str(folder), *here]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    said = json.loads((folder / "verdict-vllm.json").read_text())
    held = {check["name"]: check["holds"] for check in said["checks"]}
    assert held["exit code"], done.stderr
    assert held["nothing left running"]
    assert held["every proof of a weight sync holds"]
    assert set(held) >= {"reward rises", "held-out accuracy does not fall"}
    assert (done.returncode == 0) is (said["verdict"] == "PASS") is all(held.values())
    assert f"{said['verdict']}: grpo_gsm8k_vllm" in done.stdout
