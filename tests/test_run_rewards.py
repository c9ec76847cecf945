"""A whole run with other systems' reward functions and a post-process hook."""

import json
from pathlib import Path

import pytest

from tests.orchestrated import SMALL, orchestrate, read, run_dirs

pytestmark = pytest.mark.e2e

MINE = """
import asyncio

async def vime(args, sample):
    await asyncio.sleep(0.001)
    assert sample.response_length == len(sample.tokens), sample
    return args.scale * (sample.response == str(sample.label))

def parts(completions, **kwargs):
    return [{"train": float(len(c[0]["content"])), "held": 100.0} for c in completions]
"""
FUNCTIONS = (
    "reward.functions=[{name: vime, target: 'mine.py:vime', params: {scale: 2.0}, weight: 0.5}, "
    "{name: parts, target: 'mine.py:parts', key: train, eval_key: held, weight: 0.1}]"
)
HOOK = ("reward.post_process.target=group_norm", "reward.post_process.params={std: false}")
EVALUATION = (
    "trainer.args.eval_strategy=steps", "trainer.args.eval_steps=2", "trainer.args.per_device_eval_batch_size=16"
)  # fmt: skip


@pytest.mark.parametrize("kind", ["local", "inprocess"])
def test_a_hook_over_foreign_functions(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    words = (*SMALL, *EVALUATION, FUNCTIONS, *HOOK, f"reward.kind={kind}", "trainer.args.max_steps=2")
    done = orchestrate(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (run_dir,) = run_dirs(tmp_path)
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "reward" in line]
    assert len(steps) == 2
    for step in steps:
        raw = 0.5 * step["rewards/vime/mean"] + 0.1 * step["rewards/parts/mean"]
        assert step["reward_raw"] == pytest.approx(raw, abs=1e-5)
        # The hook takes each group's mean off.
        assert [step["reward"], step["rewards/post_process/mean"]] == pytest.approx([0.0, 0.0], abs=1e-6)
        assert step["rewards/parts/mean"] < 100
    (evaluated,) = (line for line in lines if "eval_reward" in line)
    assert evaluated["eval_rewards/parts/mean"] == 100.0
    assert evaluated["eval_reward"] == pytest.approx(0.5 * evaluated["eval_rewards/vime/mean"] + 10, abs=1e-4)

    result = read(run_dir / "result.json")
    for when in ("heldout_before", "heldout_after"):
        for means in (result[when]["sampled"], result[when]["greedy"]):
            assert means["parts"] == 100.0
            assert means["reward"] == pytest.approx(0.5 * means["vime"] + 10)
    assert result["first_reward"] == pytest.approx(steps[0]["reward_raw"])
    samples = [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 2 * 16
    for sample in samples:
        assert set(sample["components"]) == {"vime", "parts"}
        assert sample["raw"] == pytest.approx(0.5 * sample["components"]["vime"] + 0.1 * sample["components"]["parts"])
    for group in (samples[i : i + 8] for i in range(0, len(samples), 8)):
        mean = sum(sample["raw"] for sample in group) / 8
        assert [sample["reward"] for sample in group] == pytest.approx([sample["raw"] - mean for sample in group])
