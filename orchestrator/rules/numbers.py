"""NUM: batch sizes and group sizes (the arithmetic of TRL 1.16, see orchestrator/ledgers/batches.py)."""

from collections.abc import Iterator
from math import isqrt
from typing import Any

from packaging.version import Version

from orchestrator.fields.trainer import TRAINER_KINDS
from orchestrator.findings import Finding
from orchestrator.ledgers.batches import DEFAULTS, BatchPlan, run_batches
from orchestrator.rules.case import Case
from orchestrator.rules.versions import version_of


def _plan(case: Case) -> BatchPlan | None:
    return run_batches(case.run)


def _compares_groups(case: Case) -> bool:
    """Advantages compare the completions of one prompt."""
    return TRAINER_KINDS[case.run.trainer.kind].needs_group or case.run.trainer.args.get("group_relative") is True


def _whole_groups(case: Case) -> bool:
    """A generation batch must hold whole groups. EBFT's strided mode samples inside a document: it has no groups."""
    run = case.run
    return TRAINER_KINDS[run.trainer.kind].whole_groups and run.trainer.args.get("mode") != "strided"


def _sizes(case: Case, *keys: str) -> dict[str, Any]:
    args = case.run.trainer.args
    return {f"trainer.args.{key}": args.get(key, DEFAULTS.get(key)) for key in keys}


def group_does_not_divide(case: Case) -> Iterator[Finding]:
    """A generation batch holds whole groups.

    ## What it checks
    generation_batch_size % num_generations, where generation_batch_size = per_device_train_batch_size x processes x
    steps_per_generation (default: gradient_accumulation_steps). TRL before 0.20 left the accumulation out.
    ## Why it matters
    Rewards are compared within a group; TRL refuses a batch with half a group, after the model has loaded.
    ## Bad
        trainer.args.num_generations=7
        trainer.args.per_device_train_batch_size=12
    ## Good
        limits.generations=16
        trainer.args.per_device_train_batch_size=1 trainer.args.gradient_accumulation_steps=8
    """
    plan = _plan(case)
    if plan is None or plan.group < 2 or not _whole_groups(case) or not _states_batch(case):
        return
    trl = version_of(case.facts.versions, "trl")
    batch, formula = plan.generation_batch, ""
    if case.run.trainer.kind == "command" or case.run.trainer.args.get("generation_batch_size") is None:
        formula = f" ({plan.per_device} per device x {plan.world} processes x {plan.steps_per_generation} steps)"
    if trl is not None and trl < Version("0.20") and case.run.trainer.kind in ("grpo", "rloo"):
        batch = plan.global_batch
        formula = f" ({plan.per_device} per device x {plan.world} processes; trl {trl} ignores the accumulation)"
    if batch % plan.group == 0:
        return
    fitting = _divisors(batch)
    near = sorted(fitting, key=lambda n: abs(n - plan.group))[:3]
    yield Finding(
        values={"generation batch": batch, "trainer.args.num_generations": plan.group}
        | _sizes(case, "per_device_train_batch_size", "gradient_accumulation_steps")
        | {"limits.generations": case.run.limits.generations},
        problem=f"{batch} completions a batch are not whole groups of {plan.group}{formula}",
        why="The trainer refuses it when it is built, after the model has loaded.",
        fix=f"set limits.generations to one of {sorted(near)}" if near else "raise per_device_train_batch_size",
    )


def _divisors(number: int) -> list[int]:
    """Those above one."""
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)} - {1})


def _states_batch(case: Case) -> bool:
    """A foreign trainer's batches are compared only where the recipe states them."""
    args = case.run.trainer.args
    stated = ("generation_batch_size", "per_device_train_batch_size")
    return case.run.trainer.kind != "command" or any(args.get(key) is not None for key in stated)


def generations_disagree(case: Case) -> Iterator[Finding]:
    """The trainer's group size is the one that the limits state.

    ## What it checks
    `trainer.args.num_generations` against `limits.generations`. Where the trainer's count does not even divide the
    batch, NUM001 says so and names both.
    ## Why it matters
    Everything else that counts completions (budgets, samples, the report) takes the limits' number.
    ## Bad
        trainer.args.num_generations=16
    ## Good
        limits.generations=16
    """
    plan = _plan(case)
    promised = case.run.limits.generations
    if plan is None or TRAINER_KINDS[case.run.trainer.kind].generations is None:
        return
    if plan.generation_batch % plan.group == 0 and plan.group != promised:
        yield Finding(
            values={"trainer.args.num_generations": plan.group, "limits.generations": promised},
            problem=f"the trainer wants groups of {plan.group}, the limits say {promised}",
            why="One of the two numbers is not what you think you train with.",
            fix=f"leave trainer.args.num_generations alone and set limits.generations={plan.group}",
        )


def group_too_small(case: Case) -> Iterator[Finding]:
    """A group has at least two completions.

    ## What it checks
    `num_generations >= 2` for trainers whose advantages compare completions (GRPO, RLOO, EBFT, and a foreign trainer
    with `group_relative`). PPO has a value model instead, and distillation a teacher: one completion is right there.
    ## Why it matters
    An advantage is a reward minus the group's mean: with one completion it is always zero, and nothing is learned.
    ## Bad
        limits.generations=1
    ## Good
        limits.generations=2
    """
    plan = _plan(case)
    if plan is not None and plan.group < 2 and _compares_groups(case):
        yield Finding(
            values=_sizes(case, "num_generations"),
            problem=f"a group of {plan.group} has no relative advantage; it needs >= 2",
            why="Reward minus group mean would be 0 for every completion.",
            fix="set limits.generations=8 (at least 2)"
            + (", or name more environment URLs" if case.run.reward.environment.urls else ""),
        )


def batch_not_over_processes(case: Case) -> Iterator[Finding]:
    """A generation batch is the same for every process.

    ## What it checks
    generation_batch_size % (per_device_train_batch_size x processes), when it is given; and that generation_batch_size
    and steps_per_generation are not both given.
    ## Why it matters
    TRL refuses to build the trainer, after the model has loaded.
    ## Bad
        trainer.args.generation_batch_size=200
        trainer.args.generation_batch_size=128 trainer.args.steps_per_generation=1
    ## Good
        trainer.args.generation_batch_size=256
    """
    plan, args = _plan(case), case.run.trainer.args
    given = args.get("generation_batch_size")
    if plan is None or given is None or not _whole_groups(case):
        return
    update = args.get("update_batch_size")
    if case.run.trainer.kind == "command":
        if isinstance(update, int) and update > 0 and given % update:
            yield Finding(
                severity="warning",
                values={"trainer.args.generation_batch_size": given, "trainer.args.update_batch_size": update},
                problem=f"{given} generated completions are not whole updates of {update}",
                why="Most trainers refuse it or drop the rest; this one's own rule is not known.",
                fix=f"set trainer.args.generation_batch_size={-(-given // update) * update}",
            )
        return  # how a foreign trainer spreads a batch over its processes is its own affair
    if args.get("steps_per_generation") is not None:
        problem = "generation_batch_size and steps_per_generation are both set; each follows from the other"
        fix = "remove one of them"
    elif given % plan.global_batch:
        problem = (
            f"generation_batch_size {given} is not a multiple of {plan.per_device} per device x {plan.world} processes"
        )
        fix = f"set trainer.args.generation_batch_size={-(-given // plan.global_batch) * plan.global_batch}"
    else:
        return
    yield Finding(
        values=_sizes(case, "generation_batch_size", "steps_per_generation", "per_device_train_batch_size"),
        problem=problem,
        why="TRL refuses to build the trainer.",
        fix=fix,
    )


def eval_batch_not_groups(case: Case) -> Iterator[Finding]:
    """A batch of TRL's own evaluation holds whole groups.

    ## What it checks
    With `eval_strategy` on: per_device_eval_batch_size x processes % num_generations_eval (default: num_generations),
    and that there are held-out rows to evaluate.
    ## Why it matters
    TRL refuses to build the trainer.
    ## Bad
        trainer.args.eval_strategy=steps trainer.args.per_device_eval_batch_size=12
        trainer.args.eval_strategy=steps evaluation.rows=0
    ## Good
        trainer.args.eval_strategy=steps trainer.args.per_device_eval_batch_size=16
        trainer.args.per_device_eval_batch_size=12
    """
    plan, args = _plan(case), case.run.trainer.args
    if plan is None or args.get("eval_strategy", "no") in ("no", False) or not _compares_groups(case):
        return
    if case.run.evaluation.rows == 0:
        yield Finding(
            severity="warning",
            values={"trainer.args.eval_strategy": args["eval_strategy"], "evaluation.rows": 0},
            problem="TRL is to evaluate while it trains, and there are no held-out rows",
            why="Its own evaluation is turned off for this run.",
            fix="set evaluation.rows above 0, or leave out trainer.args.eval_strategy",
        )
        return
    per_device = args.get("per_device_eval_batch_size", DEFAULTS["per_device_eval_batch_size"])
    group = args.get("num_generations_eval") or plan.group
    if isinstance(per_device, int) and isinstance(group, int) and (per_device * plan.world) % group:
        yield Finding(
            values=_sizes(case, "per_device_eval_batch_size", "num_generations_eval", "num_generations"),
            problem=f"an evaluation batch of {per_device} x {plan.world} completions is not whole groups of {group}",
            why="TRL refuses to build the trainer.",
            fix=f"set trainer.args.per_device_eval_batch_size={-(-per_device // group) * group}",
        )


def count_not_positive(case: Case) -> Iterator[Finding]:
    """Counts are at least one.

    ## What it checks
    Batch sizes, accumulation, generations, iterations, `reward.workers`, `weight_sync.verify_every`; time limits are
    above zero.
    ## Why it matters
    Zero workers score nothing and a time limit of zero is always over.
    ## Bad
        trainer.args.per_device_train_batch_size=0
        reward.timeout_s=0
        evaluation.rows=-1
        trainer.args.max_steps=0
        generation.weight_sync.tolerance=0
        generation.weight_sync.verify_every=0
        supervision.alarms.patience_steps=0
        supervision.restarts=-1
    ## Good
        reward.workers=2
    """
    run = case.run
    counts = _sizes(
        case, "per_device_train_batch_size", "gradient_accumulation_steps", "num_generations", "num_iterations"
    )
    counts |= {
        "reward.workers": run.reward.workers,
        "generation.weight_sync.verify_every": run.generation.weight_sync.verify_every,
        "generation.max_batch_rows": run.generation.max_batch_rows,
        "evaluation.samples": run.evaluation.samples,
        "supervision.alarms.patience_steps": run.supervision.alarms.patience_steps,
        "generation.tensor_parallel_size": run.generation.tensor_parallel_size,
        "generation.data_parallel_size": run.generation.data_parallel_size,
        "reward.judge.tensor_parallel_size": run.reward.judge.tensor_parallel_size,
        "reward.judge.max_model_len": run.reward.judge.max_model_len,
        "trainer.lora.r": run.trainer.lora.r,
        "hardware.machines": run.hardware.machines,
        "hardware.cpus": run.hardware.cpus,
        "sweep.parallel": run.sweep.parallel,
    }
    counts |= {
        f"trainer.args.{key}": run.trainer.args.get(key) for key in ("steps_per_generation", "generation_batch_size")
    }
    counts |= {
        f"generation.args.{key}": value
        for key, value in run.generation.args.items()
        if key in ("pipeline_parallel_size", "max_num_batched_tokens", "max_num_seqs", "max_lora_rank")
    }
    counts["reward.environment.max_turns"] = run.reward.environment.max_turns
    limits = {
        "reward.timeout_s": run.reward.timeout_s,
        "generation.request_timeout_s": run.generation.request_timeout_s,
        "supervision.ready_timeout_s": run.supervision.ready_timeout_s,
        "supervision.alarms.stall_s": run.supervision.alarms.stall_s,
    }
    for path, value in counts.items():
        if isinstance(value, int) and value < 1:
            yield _too_small(path, value, "1")
    if run.generation.ready_timeout_s is not None:
        limits["generation.ready_timeout_s"] = run.generation.ready_timeout_s
    tolerance = run.generation.weight_sync.tolerance
    if tolerance is not None:
        limits["generation.weight_sync.tolerance"] = tolerance
    floors = {
        "supervision.stop_grace_s": run.supervision.stop_grace_s,
        "supervision.restarts": run.supervision.restarts,
        "hardware.gpus": run.hardware.gpus,
        "generation.num_machines": run.generation.num_machines,
    }
    for path, value in floors.items():
        if value is not None and value < 0:
            yield _too_small(path, value, "0")
    if run.trainer.args.get("max_steps") == 0:
        yield _too_small("trainer.args.max_steps", 0, "1 (or to -1, for num_train_epochs)")
    if run.evaluation.rows < 0:
        yield _too_small("evaluation.rows", run.evaluation.rows, "0 (none)")
    for path, seconds in limits.items():
        if seconds <= 0:
            yield _too_small(path, seconds, "something above 0")


def _too_small(path: str, value: float, least: str) -> Finding:
    return Finding(
        values={path: value},
        problem=f"{path} = {value}",
        why="With this value the part does nothing.",
        fix=f"set it to {least} or more",
    )
