"""The legal `trainer.args` of the installed TRL and transformers, read from their sources without importing them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from orchestrator.fields.source import FieldFact, SourceUnreadableError, class_fields


@dataclass(frozen=True, kw_only=True)
class TrainerKind:
    """Where a trainer's config class lives, and what it calls the facts that `limits` states."""

    config: str | None
    """module:class; None = this version has no such trainer, so its arguments are not known"""
    completion_length: str = "max_completion_length"
    generations: str | None = "num_generations"
    """None = the trainer draws a fixed number of completions per prompt, or one"""
    default_generations: int = 8
    needs_group: bool = True
    """Advantages compare completions of one prompt, so a group of one teaches nothing."""
    whole_groups: bool = True
    """A generation batch must hold whole groups (trl's GRPOConfig and RLOOConfig demand it)."""


TRAINER_KINDS: Mapping[str, TrainerKind] = {
    "grpo": TrainerKind(config="trl.trainer.grpo_config:GRPOConfig"),
    "rloo": TrainerKind(config="trl.trainer.rloo_config:RLOOConfig", default_generations=2),
    "online_dpo": TrainerKind(
        config="trl.experimental.online_dpo.online_dpo_config:OnlineDPOConfig",
        completion_length="max_new_tokens",
        generations=None,
        default_generations=2,
        needs_group=False,
        whole_groups=False,
    ),
    "async_grpo": TrainerKind(
        config="trl.experimental.async_grpo.async_grpo_config:AsyncGRPOConfig", whole_groups=False
    ),
    "ppo": TrainerKind(config=None, generations=None, default_generations=1, needs_group=False, whole_groups=False),
    "ebft": TrainerKind(config=None),
    "command": TrainerKind(config="orchestrator.foreign:ForeignArgs", default_generations=1, needs_group=False),
}


@cache
def trainer_fields(kind: str) -> Mapping[str, FieldFact]:
    """Fields of the config class of trainer `kind`, base classes included. Raises SourceUnreadableError."""
    config = TRAINER_KINDS[kind].config
    if config is None:
        raise SourceUnreadableError(f"this version of orchestrate has no trainer {kind}")
    module, name = config.split(":")
    fields = class_fields(module, name)
    fields |= {key: replace(fields[key], choices=words) for key, words in _WORDS.items() if key in fields}
    wider = _WIDER | _WIDER_BY_KIND.get(kind, {})
    return fields | {key: replace(fields[key], annotation=text) for key, text in wider.items() if key in fields}


# Annotated more narrowly than the class accepts: TRL maps the booleans of older recipes itself, transformers reads
# lists of fsdp's words, and online DPO's beta may be one number an epoch.
_WIDER = {"scale_rewards": "str | bool", "fsdp": "str | bool | list[str] | None"}
_WIDER_BY_KIND = {"online_dpo": {"beta": "float | list[float]"}}

# Words that trl 1.16's GRPOTrainer compares with, and raises for others only once it trains.
_WORDS = {
    "loss_type": ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "scale_rewards": ("group", "batch", "none"),
}
