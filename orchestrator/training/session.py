"""One training run inside the trainer process: prove the sync, evaluate, train, evaluate, save, report."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase, set_seed
from trl import GRPOTrainer

from orchestrator.data.recipe import heldout_rows, training_rows
from orchestrator.kinds import through_our_client
from orchestrator.ledgers.batches import BatchPlan, batch_plan, largest_request
from orchestrator.paths import RunPaths
from orchestrator.schema import RunConfig
from orchestrator.supervise.rundir import write_json
from orchestrator.training.building import build_trainer
from orchestrator.training.evaluate import Evaluation, evaluate
from orchestrator.training.grpo import grpo_config, load_tokenizer
from orchestrator.training.metrics import StepTrace
from orchestrator.training.progress import Progress
from orchestrator.training.prompts import Row, prompt_lengths, remember_lengths, within_limit
from orchestrator.training.report import TrainingReport, trl_eval_steps
from orchestrator.training.rollout import sampling_of
from orchestrator.training.samples import keep_steps_up_to
from orchestrator.training.scoring import Scoring, make_scoring
from orchestrator.training.sync import WeightSync
from orchestrator.training.trl_generation import Generates


class NothingTrainedError(RuntimeError):
    """There is nothing to train on, or no step to train."""


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """Rows within `limits.prompt_length`."""

    train: Sequence[Row]
    heldout: Sequence[Row]
    num_dropped: int


@dataclass(frozen=True, kw_only=True)
class Session:
    """Everything that a training run holds, once it is built."""

    run: RunConfig
    paths: RunPaths
    plan: BatchPlan
    prompts: Prompts
    tokenizer: PreTrainedTokenizerBase
    generator: Generates
    scoring: Scoring
    trainer: GRPOTrainer
    sync: WeightSync | None
    """None where the trainer's own model generates: nothing is sent."""
    trace: StepTrace
    progress: Progress

    def evaluate(self) -> Evaluation | None:
        """Held-out means by what generates in training; None when the recipe wants none."""
        if not self.prompts.heldout:
            return None
        what = "the held-out evaluation"
        self.progress.doing(what)
        return evaluate(
            self.prompts.heldout,
            tokenizer=self.tokenizer,
            generator=self.generator,
            score=self.progress.through(self.scoring.score, what, then=what),
            sampling=replace(sampling_of(self.trainer), max_tokens=self.run.limits.completion_length),
            samples=self.run.evaluation.samples,
            seed=self.run.seed,
            wants_ids=self.scoring.wants_ids,
            template_kwargs=self.trainer.chat_template_kwargs,
        )

    def fit(self, start_step: int, resume_from: str | None) -> float:
        """Train to the end; returns seconds. A run that died after its last step trains nothing more."""
        config = self.trainer.args
        started = time.monotonic()
        # Asked to resume at its last step, HF's trainer would train one step beyond it.
        if not start_step or config.max_steps <= 0 or start_step < config.max_steps:
            self.trainer.train(resume_from_checkpoint=resume_from)
        return time.monotonic() - started


def train(run: RunConfig, run_dir: Path, resume_from: str | None) -> None:
    """Everything the trainer does, trainer.json last."""
    paths = RunPaths(run_dir=run_dir)
    start_step = _checkpoint_step(resume_from)
    for path in (paths.metrics, paths.samples):
        keep_steps_up_to(path, start_step)
    session = _build(run, paths, resume_from)

    if session.sync is not None:
        session.progress.doing("the proof of the weight sync")
        session.sync.canary(start_step)
    before = None if resume_from else session.evaluate()
    if before is not None:
        write_json(paths.heldout_before, asdict(before))
    seconds = session.fit(start_step, resume_from)
    final_step = session.trainer.state.global_step or start_step
    if final_step == 0:
        raise NothingTrainedError("training ended at step 0: trainer.args.max_steps or num_train_epochs leave no step")
    if session.sync is not None:
        session.progress.doing("the last weight sync")
        session.sync.push(final_step)
        session.sync.verify()
    after = session.evaluate()

    session.progress.doing("saving the model")
    session.trainer.save_model(str(paths.model))
    report = TrainingReport(
        plan=session.plan,
        start_step=start_step,
        final_step=final_step,
        training_s=seconds,
        micro_steps=session.trace.micro_steps,
        num_rows=len(session.prompts.train),
        num_dropped=session.prompts.num_dropped,
        logprob_gap=None if session.sync is None else session.sync.gap,
        counted_syncs=through_our_client(run),
        evaluated=tuple(e for e in (before, after) if e is not None),
        trl_eval_steps=trl_eval_steps(session.trainer.state.log_history, start_step),
        trl_eval_samples=len(session.prompts.heldout) * session.trainer.num_generations_eval,
        after=after,
    )
    write_json(paths.trainer, report.as_json(paths))


def _build(run: RunConfig, paths: RunPaths, resume_from: str | None) -> Session:
    set_seed(run.seed)
    config = grpo_config(run, paths.checkpoints)  # before the model loads, for ZeRO-3
    plan = batch_plan(run.trainer.args, config.world_size)
    assert plan is not None, "the rules have checked every count"  # noqa: S101
    tokenizer = load_tokenizer(run)
    prompts = _prompts(run, tokenizer, config.chat_template_kwargs)
    needed = plan.generation_batch // plan.group
    if len(prompts.train) < needed:
        raise NothingTrainedError(
            f"{len(prompts.train)} training prompts, and one generation batch takes {needed}: TRL would train nothing. "
            f"{prompts.num_dropped} were dropped for having more than limits.prompt_length tokens. "
            "fix: raise limits.prompt_length, or lower trainer.args.per_device_train_batch_size"
        )
    scoring = make_scoring(run.reward, largest_request(run.evaluation, plan))
    progress = Progress(paths.progress, step=_checkpoint_step(resume_from), writes=config.process_index == 0)
    trainer, generator, sync = build_trainer(
        run, paths, config, tokenizer, prompts.train, prompts.heldout, scoring, progress, resume_from
    )
    trace = StepTrace()
    trainer.add_callback(trace)
    return Session(
        run=run,
        paths=paths,
        plan=plan,
        prompts=prompts,
        tokenizer=tokenizer,
        generator=generator,
        scoring=scoring,
        trainer=trainer,
        sync=sync,
        trace=trace,
        progress=progress,
    )


def _prompts(run: RunConfig, tokenizer: PreTrainedTokenizerBase, template_kwargs: dict[str, Any] | None) -> Prompts:
    """Raises DataError and PromptTooLongError, before anything trains."""
    limit, policy = run.limits.prompt_length, run.data.long_prompts
    train, unseen = training_rows(run), heldout_rows(run)
    lengths = prompt_lengths(tokenizer, train, "training", template_kwargs)
    remember_lengths(run, train, lengths)
    kept, num_dropped = within_limit(train, lengths, limit, policy, "training")
    lengths = prompt_lengths(tokenizer, unseen, "held-out", template_kwargs)
    heldout, _ = within_limit(unseen, lengths, limit, policy, "held-out")
    return Prompts(train=kept, heldout=heldout, num_dropped=num_dropped)


def _checkpoint_step(resume_from: str | None) -> int:
    """Optimizer steps that a checkpoint folder holds; 0 for a fresh start."""
    if resume_from is None:
        return 0
    return int(json.loads(Path(resume_from, "trainer_state.json").read_text(encoding="utf-8"))["global_step"])
