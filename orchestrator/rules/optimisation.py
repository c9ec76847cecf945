"""NUM: the trainer's numbers, alone and together."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

from orchestrator.findings import Finding
from orchestrator.kinds import generation_kind, through_our_client
from orchestrator.rules.case import Case


def scaling_ignored(case: Case) -> Iterator[Finding]:
    """Settings of the advantage are ones that the chosen aggregation reads.

    ## What it checks
    `scale_rewards` other than TRL's default beside `multi_objective_aggregation: normalize_then_sum` (GDPO), which has
    its own normalisation; and that GDPO has at least two functions.
    ## Why it matters
    TRL does not read `scale_rewards` there: the advantages are scaled all the same.
    ## Bad
        trainer.args.multi_objective_aggregation=normalize_then_sum trainer.args.scale_rewards=none
        trainer.args.multi_objective_aggregation=normalize_then_sum
    ## Good
        trainer.args.scale_rewards=none
    """
    args = case.run.trainer.args
    if args.get("multi_objective_aggregation") != "normalize_then_sum":
        return
    given = args.get("scale_rewards")
    if given not in (None, True, "group"):
        yield Finding(
            severity="warning",
            values={
                "trainer.args.scale_rewards": given,
                "trainer.args.multi_objective_aggregation": "normalize_then_sum",
            },
            problem=f"scale_rewards = {given} changes nothing under normalize_then_sum",
            why="Each reward is divided by its group's spread before the sum, whatever scale_rewards says.",
            fix="remove trainer.args.scale_rewards, or use multi_objective_aggregation=sum_then_normalize",
        )
    functions = case.run.reward.functions
    if len(functions) == 1:
        yield Finding(
            severity="warning",
            values={
                "trainer.args.multi_objective_aggregation": "normalize_then_sum",
                "reward.functions": [function.name for function in functions],
            },
            problem="normalize_then_sum normalises each reward by itself, and there is one",
            why="It is then the same as sum_then_normalize, with a second normalisation over the batch.",
            fix="add a reward function, or remove trainer.args.multi_objective_aggregation",
        )


SEQUENCE_KEYS = ("cp_size", "sp_size", "parallelism_config_cp_size", "parallelism_config_sp_size")


def sequence_parallel(case: Case) -> Iterator[Finding]:
    """Sequences are not split over GPUs where the trainer cannot do it.

    ## What it checks
    `cp_size` and `sp_size` above 1 in `trainer.args.parallelism_config` or in an accelerate file, with TRL's GRPO
    trainers.
    ## Why it matters
    TRL refuses it when the config is built: GRPO makes its inputs inside the trainer, where they are not split.
    ## Bad
        'trainer.args.parallelism_config={cp_size: 2}'
        launcher=accelerate launcher.config=acc.yaml
        facts: {"launcher_config": {"num_processes": 2, "parallelism_config": {"parallelism_config_sp_size": 2}}}
    ## Good
        'trainer.args.parallelism_config={cp_size: 1}'
    """
    if case.run.trainer.kind not in ("grpo", "rloo", "async_grpo"):
        return
    launched = case.facts.launcher_config
    file = launched.get("parallelism_config") if isinstance(launched, Mapping) else None
    places = {
        "trainer.args.parallelism_config": case.run.trainer.args.get("parallelism_config"),
        f"{case.run.launcher.config}: parallelism_config": file,
    }
    for path, config in places.items():
        sizes = config if isinstance(config, Mapping) else {}
        for key in SEQUENCE_KEYS:
            size = sizes.get(key)
            if isinstance(size, int) and size > 1:
                yield Finding(
                    values={f"{path}.{key}": size, "trainer.kind": case.run.trainer.kind},
                    problem=f"{key} = {size}: {case.run.trainer.kind} does not split sequences over GPUs",
                    why="TRL refuses it when the trainer's config is built.",
                    fix=f"set {key} to 1; ZeRO-3 or gradient checkpointing save memory for long completions",
                )


def refused_combination(case: Case) -> Iterator[Finding]:
    """Arguments that TRL refuses together, once the model has loaded, are not together.

    ## What it checks
    What trl 1.16's GRPOTrainer raises for after its config is built: `sync_ref_model` without a reference model
    (`beta` = 0) or with adapters; `loss_type: vespo` with vLLM's importance sampling per sequence. What the
    config's own class refuses is found by `orchestrate check --deep`.
    ## Why it matters
    The message comes after the model has loaded on every GPU.
    ## Bad
        trainer.args.sync_ref_model=true
        generation=vllm_nccl trainer.args.loss_type=vespo trainer.args.vllm_importance_sampling_mode=sequence_mask
    ## Good
        trainer.args.sync_ref_model=true trainer.args.beta=0.04
    """
    run, args = case.run, case.run.trainer.args
    if run.trainer.kind != "grpo":
        return
    beta = args.get("beta") or 0
    if args.get("sync_ref_model") is True and (not beta or run.trainer.lora.r is not None):
        yield Finding(
            values={
                "trainer.args.sync_ref_model": True,
                "trainer.args.beta": beta,
                "trainer.lora.r": run.trainer.lora.r,
            },
            problem="sync_ref_model copies the policy to a reference model, and there is none: "
            + ("beta = 0" if not beta else "with adapters the base model is the reference"),
            why="TRL refuses to build the trainer.",
            fix="remove trainer.args.sync_ref_model" + (", or set trainer.args.beta above 0" if not beta else ""),
        )
    mode = args.get("vllm_importance_sampling_mode") or "sequence_mask"
    corrected = args.get("vllm_importance_sampling_correction", True) is True and not through_our_client(run)
    if (
        args.get("loss_type") == "vespo"
        and generation_kind(run.generation).vllm
        and corrected
        and "token" not in str(mode)
    ):
        yield Finding(
            values={"trainer.args.loss_type": "vespo", "trainer.args.vllm_importance_sampling_mode": mode},
            problem=f"loss_type = vespo needs importance sampling per token, not {mode}",
            why="TRL refuses to build the trainer.",
            fix="set trainer.args.vllm_importance_sampling_mode=token_truncate",
        )


RANGES: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "trainer.args.learning_rate": (lambda v: v > 0, "above 0"),
    "trainer.args.beta": (lambda v: v >= 0, "0 or more"),
    "trainer.args.epsilon": (lambda v: v > 0, "above 0"),
    "trainer.args.epsilon_high": (lambda v: v > 0, "above 0"),
    "trainer.args.max_grad_norm": (lambda v: v >= 0, "0 or more"),
    "trainer.args.weight_decay": (lambda v: v >= 0, "0 or more"),
    "trainer.args.warmup_steps": (lambda v: v >= 0, "0 or more"),
    "trainer.args.max_steps": (lambda v: v >= -1, "-1 (epochs decide) or more"),
    "trainer.args.num_train_epochs": (lambda v: v > 0, "above 0"),
    "generation.args.gpu_memory_utilization": (lambda v: 0 < v <= 1, "above 0, at most 1 (a share)"),
    "trainer.args.vllm_gpu_memory_utilization": (lambda v: 0 < v <= 1, "above 0, at most 1 (a share)"),
}


def number_out_of_range(case: Case) -> Iterator[Finding]:
    """Numbers of the trainer and of the engine are ones that mean something, alone and together.

    ## What it checks
    Signs and ranges of learning rate, KL coefficient, clipping, weight decay, warm-up, steps, epochs and shares of
    memory; warm-up below `max_steps` (a note: a short trial has that); `epsilon_high` not below `epsilon`.
    ## Why it matters
    Libraries take most of these numbers as they are: a negative rate unlearns, a warm-up that never ends never trains.
    ## Bad
        trainer.args.learning_rate=-1e-5
        trainer.args.warmup_steps=500
        trainer.args.epsilon=0.2 trainer.args.epsilon_high=0.1
        generation=vllm generation.args.gpu_memory_utilization=90
    ## Good
        trainer.args.warmup_steps=20 trainer.args.epsilon=0.2 trainer.args.epsilon_high=0.28
    """
    args, engine = case.run.trainer.args, case.run.generation.args
    for path, (fits, legal) in RANGES.items():
        holder = args if path.startswith("trainer") else engine
        value = holder.get(path.rpartition(".")[2])
        if _is_number(value) and not fits(value):
            yield Finding(
                values={path: value},
                problem=f"{path} = {value} is not {legal}",
                why="The library takes it as it is, or fails when it starts.",
                fix=f"set {path} to a number that is {legal}",
            )
    warmup, steps = args.get("warmup_steps"), args.get("max_steps")
    if _is_number(warmup) and _is_number(steps) and 0 < steps <= warmup:
        yield Finding(
            severity="note",
            values={"trainer.args.warmup_steps": warmup, "trainer.args.max_steps": steps},
            problem=f"the learning rate would still rise when the run ends: {warmup} warm-up steps of {steps}",
            why="The rate that the recipe states is never reached.",
            fix=f"set trainer.args.warmup_steps below {steps}, e.g. {max(steps // 10, 1)}",
        )
    low, high = args.get("epsilon", 0.2), args.get("epsilon_high")
    if _is_number(low) and _is_number(high) and high < low:
        yield Finding(
            severity="warning",
            values={"trainer.args.epsilon": low, "trainer.args.epsilon_high": high},
            problem=f"the upper clip {high} is tighter than the lower one {low}",
            why="Clip-higher is meant to let good tokens grow more than bad ones shrink; this does the opposite.",
            fix="swap the two, or leave epsilon_high out",
        )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
