"""GRPO by TRL's own trainer: configured, not wrapped."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainingArguments,
)
from trl import GRPOConfig, GRPOTrainer

from orchestrator.schema import RunConfig
from orchestrator.training.rollout import Rollout
from orchestrator.training.scoring import reward_weights
from orchestrator.training.trl_generation import trl_generation_args

Config = TypeVar("Config", bound=TrainingArguments)


class ConfigRefusedError(ValueError):
    """TRL or transformers do not take `trainer.args`; the message is theirs."""


def grpo_config(run: RunConfig, checkpoints: Path) -> GRPOConfig:
    """TRL's config. It must exist before the model loads: under ZeRO-3 the model is born partitioned."""
    return trainer_config(GRPOConfig, run, checkpoints)


def trainer_config(config_class: type[Config], run: RunConfig, checkpoints: Path) -> Config:
    """The config object of a TRL trainer, as its class takes it. Raises ConfigRefusedError."""
    ours = trl_generation_args(run) | {
        "reward_weights": reward_weights(run.reward),
        # The orchestrator shows progress; a bar in a log file is noise. All data columns are for the rewards.
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }
    if run.evaluation.rows == 0:
        ours["eval_strategy"] = "no"  # NUM005 has said so: there is nothing to evaluate on
    known = {field.name for field in dataclasses.fields(config_class)}
    ours = {name: value for name, value in ours.items() if name in known}
    try:
        config: Config = config_class(**(ours | run.trainer.args | {"output_dir": str(checkpoints)}))
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise ConfigRefusedError(f"trl.{config_class.__name__} refuses trainer.args: {error}") from error
    return config


def load_tokenizer(run: RunConfig) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        run.model.name, revision=run.model.revision, trust_remote_code=run.model.trust_remote_code, padding_side="left"
    )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(run: RunConfig, checkpoint: str | None = None) -> PreTrainedModel:
    """The recipe's model, or the weights of a checkpoint of it."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        checkpoint or run.model.name,
        revision=None if checkpoint else run.model.revision,
        dtype=getattr(torch, run.model.dtype),
        trust_remote_code=run.model.trust_remote_code,
        attn_implementation=run.model.attn_implementation,
    )
    # TRL builds the reference model from this name: on a resume, too, it is the recipe's model and not the checkpoint.
    model.config._name_or_path = run.model.name
    return model


def grpo_trainer(
    config: GRPOConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[dict[str, Any]],
    eval_rows: Sequence[dict[str, Any]],
    rewards: list[Callable[..., list[float | None]]],
    rollout: Rollout | None,
    adapter: LoraConfig | None = None,
) -> GRPOTrainer:
    """With `rollout` None, TRL generates as the config says. Raises ConfigRefusedError where `adapter` does not fit."""
    wants_eval = config.eval_strategy != "no"
    try:
        trainer = GRPOTrainer(
            model=model,
            args=config,
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(list(rows)),
            eval_dataset=Dataset.from_list(list(eval_rows)) if wants_eval and eval_rows else None,
            reward_funcs=rewards,
            rollout_func=rollout,
            peft_config=adapter,
        )
    except ValueError as error:
        if adapter is None:
            raise
        raise ConfigRefusedError(f"PEFT or TRL refuse trainer.lora: {error}") from error
    # metrics.jsonl has every figure; the same as dictionaries would drown what a log is read for.
    trainer.remove_callback(PrinterCallback)
    return trainer
