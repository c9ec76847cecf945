"""DEV: parallel sizes, shares of memory, cores and dtypes."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from math import prod

from packaging.version import Version

from orchestrator.facts import ModelFacts
from orchestrator.findings import Finding
from orchestrator.kinds import STARTED_REWARD, generation_kind
from orchestrator.ledgers.batches import world_size
from orchestrator.ledgers.devices import engine_size
from orchestrator.rules.case import Case
from orchestrator.rules.devices import claims_of, written_for_elsewhere
from orchestrator.rules.versions import version_of

PROCESSES_PER_CORE = 4
"""Processes that share a core without much harm: the parts of a run work in turns."""


def tensor_parallel_does_not_divide(case: Case) -> Iterator[Finding]:
    """Tensor parallel sizes divide what they split.

    ## What it checks
    The engine's tensor parallel size against the model's attention heads; of a colocated engine, against the trainer's
    processes (vLLM before 0.8 wanted all of them: tensor parallel = processes), and engines x size against them. Of a
    foreign trainer its own tensor x pipeline x sequence parallel size against its processes.
    ## Why it matters
    vLLM refuses to build the engine, after the trainer has loaded its model.
    ## Bad
        generation=colocate launcher=torchrun launcher.num_processes=8 generation.tensor_parallel_size=3
        generation=vllm generation.tensor_parallel_size=3
        trainer=command launcher.num_processes=8 trainer.args.tensor_parallel_size=3
    ## Good
        generation=colocate launcher=torchrun launcher.num_processes=8 generation.tensor_parallel_size=4
        generation=vllm generation.tensor_parallel_size=2
    """
    run, size = case.run, engine_size(case.run)
    kind = generation_kind(run.generation)
    yield from _foreign_sizes(case)
    if not kind.vllm:
        return
    world, vllm = world_size(run), version_of(case.facts.generation_versions, "vllm")
    values = {
        "generation.tensor_parallel_size": run.generation.tensor_parallel_size,
        "launcher.num_processes": run.launcher.num_processes,
    }
    if not kind.server and world % size:
        yield Finding(
            values=values,
            problem=f"an engine over {size} GPUs does not divide the trainer's {world} processes",
            why="A colocated engine lives in the trainer's processes, the same number in each group.",
            fix="choose a generation.tensor_parallel_size that divides launcher.num_processes",
        )
    elif not kind.server and size != world and vllm is not None and vllm < Version("0.8"):
        yield Finding(
            values=values | {"vllm": str(vllm)},
            problem=f"vllm {vllm} needs tensor parallel = all {world} processes in colocated mode, not {size}",
            why="Its engine asserts that the world size equals tensor x pipeline parallel.",
            fix=f"install vllm>=0.8, or set generation.tensor_parallel_size={world}",
        )
    elif (
        not kind.server and run.generation.data_parallel_size > 1 and size * run.generation.data_parallel_size != world
    ):
        yield Finding(
            values=values | {"generation.data_parallel_size": run.generation.data_parallel_size},
            problem=f"{run.generation.data_parallel_size} engines x {size} are not the trainer's {world} processes",
            why="A colocated engine has no GPUs but the trainer's.",
            fix="leave generation.data_parallel_size out, or make the product equal",
        )
    model = case.facts.models.get(run.generation.model)
    if (
        isinstance(model, ModelFacts)
        and model.num_heads
        and model.num_heads % max(run.generation.tensor_parallel_size, 1)
    ):
        yield Finding(
            values=values | {"attention heads": model.num_heads},
            problem=f"tensor parallel {run.generation.tensor_parallel_size} does not divide the model's "
            f"{model.num_heads} attention heads",
            why="vLLM gives each GPU whole heads and refuses to start.",
            fix="choose a generation.tensor_parallel_size that divides the heads",
        )


def memory_shares_exceed_gpu(case: Case) -> Iterator[Finding]:
    """Parts that share a GPU leave each other room.

    ## What it checks
    The sum of `gpu_memory_utilization` of the engines on the same GPUs: generation and judge.
    ## Why it matters
    Each engine reserves its share when it starts; the second one fails, or the trainer runs out of memory later. A
    warning: some frameworks put engines to sleep while others work.
    ## Bad
        generation=colocate generation.args.gpu_memory_utilization=0.4 reward.judge.gpu_memory_utilization=0.8
    ## Good
        generation=colocate generation.args.gpu_memory_utilization=0.4 reward.judge.gpu_memory_utilization=0.3
    """
    ledger = [claim for claim in claims_of(case) if claim.memory_share is not None]
    for one, other in combinations(ledger, 2):
        together = (one.shares and other.shares) or bool(set(one.named or ()) & set(other.named or ()))
        total = (one.memory_share or 0) + (other.memory_share or 0)
        if together and total > 1:
            yield Finding(
                severity="warning",
                values={f"{one.part} memory share": one.memory_share, f"{other.part} memory share": other.memory_share},
                problem=f"{one.part} and {other.part} share GPUs and take {one.memory_share} + {other.memory_share} = "
                f"{total:g} of their memory",
                why="The second engine to start finds its share taken, unless the first one sleeps then.",
                fix="lower gpu_memory_utilization so that the sum, and the trainer's own need, stay below 1",
            )


def too_few_cores(case: Case) -> Iterator[Finding]:
    """The machine has cores for the processes that the run starts on it.

    ## What it checks
    Trainer processes, engines' workers and `reward.workers` against `hardware.cpus` or the cores that this process may
    use: a warning above four processes a core.
    ## Why it matters
    Processes that wait for a core answer late: health probes and collectives time out, GPUs idle.
    ## Bad
        reward.workers=64 hardware.cpus=2
    ## Good
        reward.workers=2 hardware.cpus=2
    """
    run = case.run
    if run.hardware.cpus is None and written_for_elsewhere(case):
        return
    cpus = run.hardware.cpus or case.facts.num_cpus
    kind = generation_kind(run.generation)
    workers = run.reward.workers if run.reward.kind == STARTED_REWARD else 0
    engines = engine_size(run) * run.generation.data_parallel_size if kind.server and kind.started else 0
    total = run.launcher.num_processes + workers + engines
    if total > PROCESSES_PER_CORE * cpus:
        yield Finding(
            severity="warning",
            values={"processes": total, "hardware.cpus": cpus, "reward.workers": run.reward.workers},
            problem=f"{total} busy processes ({run.launcher.num_processes} trainer, {engines} generation, {workers} "
            f"reward) share {cpus} cores",
            why="Health probes and collectives wait for a core and time out; a placement by cores waits for ever.",
            fix="lower reward.workers or launcher.num_processes, or take a machine with more cores",
        )


def dtype_not_on_gpu(case: Case) -> Iterator[Finding]:
    """The GPU computes in the recipe's dtype.

    ## What it checks
    bfloat16 (`generation.dtype`, `model.dtype`, `trainer.args.bf16`) needs compute capability 8.0.
    ## Why it matters
    vLLM refuses bfloat16 on older GPUs, transformers refuses `bf16`, both after the model has been found.
    ## Bad
        generation=vllm model.dtype=bfloat16
        facts: {"gpus": [{"index": 0, "name": "Tesla V100", "memory_gib": 16, "capability": 7.0}]}
    ## Good
        generation=vllm model.dtype=float16
        facts: {"gpus": [{"index": 0, "name": "Tesla V100", "memory_gib": 16, "capability": 7.0}]}
    """
    ledger = claims_of(case)
    if isinstance(case.facts.gpus, str) or not ledger or written_for_elsewhere(case):
        return
    named = {i for claim in ledger for i in claim.named or ()}
    every = any(claim.named is None and not claim.shares for claim in ledger)
    settings = {
        "model.dtype": case.run.model.dtype == "bfloat16",
        "generation.dtype": case.run.generation.dtype == "bfloat16" and generation_kind(case.run.generation).vllm,
        "trainer.args.bf16": case.run.trainer.args.get("bf16") is True,
    }
    asked = [path for path, is_bf16 in settings.items() if is_bf16]
    old: dict[str, float] = defaultdict(float)
    for gpu in case.facts.gpus:
        used = every or gpu.index in named
        if used and gpu.capability is not None and gpu.capability < 8.0:
            old[gpu.name] = gpu.capability
    for name, capability in old.items():
        if asked:
            yield Finding(
                values=dict.fromkeys(asked, "bfloat16") | {name: f"compute capability {capability}"},
                problem=f"bfloat16 needs compute capability 8.0, {name} has {capability}",
                why="vLLM and transformers refuse it when they start.",
                fix="set model.dtype=float16 (or float32) and leave trainer.args.bf16 off",
            )


def _foreign_sizes(case: Case) -> Iterator[Finding]:
    keys = ("tensor_parallel_size", "pipeline_parallel_size", "sequence_parallel_size")
    given = {key: case.run.trainer.args.get(key) for key in keys}
    sizes = {key: size for key, size in given.items() if isinstance(size, int) and size > 0}
    world, product = world_size(case.run), prod(sizes.values())
    if case.run.trainer.kind == "command" and world % product:
        yield Finding(
            values={f"trainer.args.{key}": size for key, size in sizes.items()} | {"processes": world},
            problem=f"{' x '.join(map(str, sizes.values()))} = {product} does not divide the {world} trainer processes",
            why="The trainer cannot split its processes into groups of that size.",
            fix="choose sizes whose product divides launcher.num_processes x num_machines",
        )
