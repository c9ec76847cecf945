"""The trainer, what generates for it, and how its weights get there."""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase
from trl import GRPOConfig, GRPOTrainer

from orchestrator.adapters import sends_adapters
from orchestrator.generation.client import GenerationClient
from orchestrator.generation.transfer import SafetensorsSender
from orchestrator.kinds import generation_kind, through_our_client
from orchestrator.paths import RunPaths
from orchestrator.schema import RunConfig
from orchestrator.training.groups import advantage_parts
from orchestrator.training.grpo import grpo_trainer, load_model
from orchestrator.training.lora import AdapterSender, load_adapter, lora_config
from orchestrator.training.metrics import MetricsFile
from orchestrator.training.probe import every_parameter, is_adapter
from orchestrator.training.progress import COMPUTING, Progress
from orchestrator.training.prompts import Row
from orchestrator.training.reward import RewardBatch, reward_callables
from orchestrator.training.rollout import make_rollout
from orchestrator.training.samples import SampleLog
from orchestrator.training.scoring import Scoring
from orchestrator.training.sending import FileSender
from orchestrator.training.sync import Sender, WeightSync, make_sync
from orchestrator.training.trl_generation import ColocatedEngine, Generates, OwnModel
from orchestrator.training.trl_sync import TrlSender, prove_every_sync


def build_trainer(
    run: RunConfig,
    paths: RunPaths,
    config: GRPOConfig,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    heldout: Sequence[Row],
    scoring: Scoring,
    progress: Progress,
    resume_from: str | None,
) -> tuple[GRPOTrainer, Generates, WeightSync | None]:
    """The three need each other: rollouts push weights, and the weights are the trainer's.

    Without a sync (None) the trainer's own model generates.
    """
    batch = RewardBatch(
        score=progress.through(scoring.score, "the scoring", then=COMPUTING),
        names=tuple(function.name for function in run.reward.functions),
        group_size=lambda: trainer.num_generations if trainer.model.training else trainer.num_generations_eval,
        samples=SampleLog(path=paths.samples),
        wants_ids=scoring.wants_ids,
        post_process=bool(run.reward.post_process.target),
        by_part=advantage_parts(run.reward.functions, config.multi_objective_aggregation),
        is_training=lambda: trainer.model.training,
        metrics=lambda: {} if sync is None else sync.metrics(),
        ends_with=lambda: trainer.eos_token_ids,
    )
    client, rollout = None, None
    if generation_kind(run.generation).server:
        client = GenerationClient(
            run.generation.url, model=run.generation.model, timeout_s=run.generation.request_timeout_s
        )
    if client is not None and through_our_client(run):
        push = progress.through(lambda step: _made(sync).push(step), "the weight sync", then="the generation")
        rollout = make_rollout(tokenizer, client, push, run.seed)
    adapter = lora_config(run.trainer.lora)
    model = load_model(run, None if adapter else resume_from)
    trainer = grpo_trainer(config, model, tokenizer, rows, heldout, reward_callables(batch), rollout, adapter)
    if adapter and resume_from:
        load_adapter(trainer.model, resume_from)
    trainer.add_callback(MetricsFile(paths.metrics))
    trainer.add_callback(progress)
    generator, sync = _engine(run, paths, trainer, client)
    return trainer, generator, sync


def _made(sync: WeightSync | None) -> WeightSync:
    assert sync is not None, "rollouts of ours have a server, and a server gets weights"  # noqa: S101
    return sync


def _engine(
    run: RunConfig, paths: RunPaths, trainer: GRPOTrainer, client: GenerationClient | None
) -> tuple[Generates, WeightSync | None]:
    """What answers held-out prompts, and how it gets the trainer's weights."""
    config = trainer.args
    if run.generation.kind == "inprocess":
        return OwnModel(trainer, rows=config.per_device_train_batch_size * config.steps_per_generation), None
    engine = ColocatedEngine(trainer) if client is None else client
    ours = client is not None and through_our_client(run)
    sender = _sender(run, paths, trainer, client) if client is not None and ours else TrlSender(trainer)
    sync = make_sync(
        lambda: _policy(trainer),
        sender if isinstance(sender, AdapterSender) else engine,
        sender,
        name="the colocated engine" if client is None else f"the generation server at {client.base_url}",
        dtype=run.generation.dtype,
        tolerance=run.generation.weight_sync.tolerance,
        verify_every=run.generation.weight_sync.verify_every,
        max_length=run.generation.max_model_len,
        seed=run.seed,
        one_engine=client is not None,
        moves=is_adapter if sends_adapters(run) else every_parameter,
    )
    if not ours:
        prove_every_sync(trainer, sync)
    return engine, sync


def _policy(trainer: GRPOTrainer) -> nn.Module:
    model: nn.Module = trainer.accelerator.unwrap_model(trainer.model)
    return model


def _sender(run: RunConfig, paths: RunPaths, trainer: GRPOTrainer, client: GenerationClient) -> Sender:
    if sends_adapters(run):
        return AdapterSender(lambda: _policy(trainer), client, paths.weights)
    return FileSender(SafetensorsSender(client, paths.weights, getattr(torch, run.generation.dtype)))
