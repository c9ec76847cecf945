"""One training run inside the trainer process: prove the sync, evaluate, train, evaluate, save, report."""

import json
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transformers import set_seed

from orchestrator.batches import BatchPlan, batch_plan
from orchestrator.data.recipe import heldout_rows, training_rows
from orchestrator.generation.client import GenerationClient
from orchestrator.generation.transfer import SafetensorsSender
from orchestrator.schema import RunConfig
from orchestrator.supervise.rundir import write_json
from orchestrator.training.evaluate import Evaluation, evaluate
from orchestrator.training.grpo import grpo_config, grpo_trainer, load_model, load_tokenizer
from orchestrator.training.metrics import MetricsFile, rewards_by_step
from orchestrator.training.prompts import within_limit
from orchestrator.training.reward import RewardBatch, reward_callables
from orchestrator.training.rollout import make_rollout, sampling_of
from orchestrator.training.samples import SampleLog, keep_steps_up_to
from orchestrator.training.scoring import make_score
from orchestrator.training.sync import WeightSync, make_sync

WINDOW = 10  # steps whose mean is the first and the last reward
CANARY_SYNCS = 2  # perturbed weights, true weights


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Where a run's files are. One home for their names."""

    run_dir: Path

    @property
    def metrics(self) -> Path:
        return self.run_dir / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        return self.run_dir / "samples.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.run_dir / "checkpoints"

    @property
    def weights(self) -> Path:
        return self.run_dir / "weights"

    @property
    def model(self) -> Path:
        return self.run_dir / "model"

    @property
    def heldout_before(self) -> Path:
        return self.run_dir / "heldout_before.json"

    @property
    def result(self) -> Path:
        return self.run_dir / "trainer.json"


def train(run: RunConfig, run_dir: Path, resume_from: str | None) -> None:
    """Everything the trainer does. Writes trainer.json last: without it, training did not end well."""
    paths = Paths(run_dir=run_dir)
    paths.weights.mkdir(exist_ok=True)
    start_step = _checkpoint_step(resume_from)
    for path in (paths.metrics, paths.samples):
        keep_steps_up_to(path, start_step)
    set_seed(run.seed)
    config = grpo_config(run, paths.checkpoints)
    tokenizer = load_tokenizer(run)
    limit, policy = run.limits.prompt_length, run.data.long_prompts
    rows, num_dropped = within_limit(tokenizer, training_rows(run), limit, policy, "training")
    heldout, _ = within_limit(tokenizer, heldout_rows(run), limit, policy, "held-out")

    plan = batch_plan(run.trainer.args, config.world_size)
    assert plan is not None, "the rules have checked every count"  # noqa: S101
    client = GenerationClient(
        run.generation.url, model=run.generation.model, timeout_s=run.generation.request_timeout_s
    )
    score = make_score(run.reward, plan.generation_batch)
    batch = RewardBatch(
        score=score,
        names=tuple(function.name for function in run.reward.functions),
        group_size=lambda: trainer.num_generations if trainer.model.training else trainer.num_generations_eval,
        samples=SampleLog(path=paths.samples),
        metrics=lambda: _sync_metrics(sync),
    )
    trainer = grpo_trainer(
        config,
        load_model(run, resume_from),
        tokenizer,
        rows,
        heldout,
        reward_callables(batch),
        make_rollout(tokenizer, client, lambda step: sync.push(step), run.seed),
    )
    trainer.add_callback(MetricsFile(paths.metrics))
    sync = make_sync(
        lambda: trainer.accelerator.unwrap_model(trainer.model),
        client,
        SafetensorsSender(client, paths.weights),
        dtype=run.generation.dtype,
        tolerance=run.generation.weight_sync.tolerance,
        verify_every=run.generation.weight_sync.verify_every,
        max_length=run.generation.max_model_len,
        seed=run.seed,
    )

    def measure() -> Evaluation | None:
        if not heldout:
            return None
        return evaluate(
            heldout,
            tokenizer=tokenizer,
            client=client,
            score=score,
            sampling=replace(sampling_of(trainer), max_tokens=run.limits.completion_length),
            samples=run.evaluation.samples,
            seed=run.seed,
        )

    sync.canary(start_step)
    before = None if resume_from else measure()
    if before is not None:
        write_json(paths.heldout_before, asdict(before))

    started = time.monotonic()
    # A run that died after its last step has only its end to do; HF's trainer would train one step more.
    if not start_step or start_step < (config.max_steps if config.max_steps > 0 else start_step + 1):
        trainer.train(resume_from_checkpoint=resume_from)
    seconds = time.monotonic() - started

    final_step = trainer.state.global_step or start_step
    sync.push(final_step)
    sync.verify()
    after = measure()
    trainer.save_model(str(paths.model))
    evaluations = [e for e in (before, after) if e is not None]
    write_json(
        paths.result,
        _report(paths, plan, start_step, final_step, seconds, sync, after)
        | {"num_rows": len(rows), "num_dropped": num_dropped}
        | {"expected": _expected(plan, start_step, final_step, evaluations)},
    )


def _sync_metrics(sync: WeightSync) -> dict[str, float]:
    gap = {} if sync.gap is None else {"sync/logprob_gap": sync.gap}
    return gap | {"sync/count": float(sync.num_syncs)}


def _checkpoint_step(resume_from: str | None) -> int:
    """Optimizer steps that a checkpoint folder holds; 0 for a fresh start."""
    if resume_from is None:
        return 0
    return int(json.loads(Path(resume_from, "trainer_state.json").read_text(encoding="utf-8"))["global_step"])


def _report(
    paths: Paths, plan: BatchPlan, start: int, final: int, seconds: float, sync: WeightSync, after: Evaluation | None
) -> dict[str, Any]:
    rewards = rewards_by_step(paths.metrics)
    before = json.loads(paths.heldout_before.read_text(encoding="utf-8")) if paths.heldout_before.is_file() else None
    return {
        "start_step": start,
        "final_step": final,
        "training_s": seconds,
        "seconds_per_step": seconds / max(final - start, 1),
        "completions_per_step": plan.generation_batch * plan.rounds(final - start) / max(final - start, 1),
        "first_reward": _mean(rewards[:WINDOW]),
        "last_reward": _mean(rewards[-WINDOW:]),
        "heldout_before": before,
        "heldout_after": None if after is None else asdict(after),
        "logprob_gap": sync.gap,
    }


def _expected(plan: BatchPlan, start: int, final: int, evaluations: list[Evaluation]) -> dict[str, int]:
    """What the servers must have counted, from the steps alone: the orchestrator compares."""
    steps = final - start
    return {
        "samples_scored": plan.rounds(steps) * plan.generation_batch + sum(e.num_scored for e in evaluations),
        # The first round finds the weights that the canary has proven; the final weights are sent for the last time.
        "weight_syncs": CANARY_SYNCS + len(plan.generation_steps(steps)),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
