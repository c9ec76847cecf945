"""TRL 1.16's batch arithmetic, in one place: the rules check it, the trainer's counts are compared with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.fields.trainer import TRAINER_KINDS
from orchestrator.schema import EvaluationConfig, RunConfig

DEFAULTS: Mapping[str, int] = {
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "num_iterations": 1,
}
"""GRPOConfig's and TrainingArguments' defaults; a test compares them with the installed sources."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How completions are cut into batches. Counts are completions over all processes unless said otherwise."""

    per_device: int
    world: int
    accumulation: int
    steps_per_generation: int
    generation_batch: int
    group: int
    iterations: int

    @property
    def global_batch(self) -> int:
        """Completions of one forward pass over all processes."""
        return self.per_device * self.world

    def generated_at(self, micro_steps: Sequence[int]) -> list[int]:
        """The optimizer step of each generation round.

        `micro_steps` holds, for each forward and backward pass since the (re)start, the optimizer step it belongs to.
        TRL generates before every `steps_per_generation x num_iterations`-th of them.
        """
        return list(micro_steps[:: self.steps_per_generation * self.iterations])


def world_size(run: RunConfig) -> int:
    """Trainer processes over all machines."""
    return max(run.launcher.num_processes * run.launcher.num_machines, 1)  # CFG005 reports what is below one


def run_batches(run: RunConfig) -> BatchPlan | None:
    """The recipe's batches; None where they are not stated, or not numbers."""
    kind = TRAINER_KINDS[run.trainer.kind]
    return batch_plan(run.trainer.args, world_size(run), default_group=kind.default_generations)


def batch_plan(args: Mapping[str, Any], world: int, *, default_group: int = 8) -> BatchPlan | None:
    """The arithmetic of `trainer.args`; None where a value is not a positive integer (another rule says so).

    generation_batch_size = per_device_train_batch_size x world x steps_per_generation, and steps_per_generation
    defaults to gradient_accumulation_steps (trl.GRPOConfig.__post_init__, 1.16).
    """
    defaults = {**DEFAULTS, "num_generations": default_group}
    named: dict[str, Any] = {key: default if args.get(key) is None else args[key] for key, default in defaults.items()}
    if not all(_count(value) for value in named.values()) or world < 1:
        return None
    per_step = named["per_device_train_batch_size"] * world
    given_batch, given_steps = args.get("generation_batch_size"), args.get("steps_per_generation")
    if not all(value is None or _count(value) for value in (given_batch, given_steps)):
        return None
    if given_batch is not None and given_steps is None:
        steps, batch = max(given_batch // per_step, 1), given_batch
    else:
        steps = given_steps or named["gradient_accumulation_steps"]
        batch = per_step * steps
    return BatchPlan(
        per_device=named["per_device_train_batch_size"],
        world=world,
        accumulation=named["gradient_accumulation_steps"],
        steps_per_generation=steps,
        generation_batch=batch,
        group=named["num_generations"],
        iterations=named["num_iterations"],
    )


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def largest_request(evaluation: EvaluationConfig, plan: BatchPlan | None) -> int:
    """Completions of the largest reward request: a whole generation batch, or a whole pass over the held-out rows."""
    return max(plan.generation_batch if plan else 0, evaluation.rows * evaluation.samples)
