"""DEV: memory of GPUs, shared memory and disk, as arithmetic that a finding shows."""

from collections.abc import Iterator

from orchestrator.facts import ModelFacts
from orchestrator.findings import Finding, skipped
from orchestrator.kinds import generation_kind
from orchestrator.ledgers.batches import world_size
from orchestrator.ledgers.devices import claims, engine_size, memory_share
from orchestrator.ledgers.memory import GIB, Need, generation_need, num_parameters, trainer_need
from orchestrator.rules.case import Case
from orchestrator.rules.devices import written_for_elsewhere


def memory_does_not_suffice(case: Case) -> Iterator[Finding]:
    """What must be in a GPU's memory at the least fits into it.

    ## What it checks
    Trainer: weights, gradients, optimizer states, sharded as ZeRO does. Engine: weights and the KV cache of one
    sequence at `generation.max_model_len`, against its share (`gpu_memory_utilization`). Colocated: both together.
    `hardware.gpu_memory_gib` or the GPUs seen say what there is. A warning: it is an estimate from below.
    ## Why it matters
    Out of memory comes minutes after the start, or at the first long prompt.
    ## Bad
        generation=vllm hardware.gpus=2 hardware.gpu_memory_gib=24
        facts: {"model": {"weight_bytes": 15200000000, "weight_dtype": "bfloat16", "num_layers": 28, "num_heads": 28}}
    ## Good
        generation=vllm hardware.gpus=2 hardware.gpu_memory_gib=24
        facts: {"model": {"weight_bytes": 1000000000, "weight_dtype": "bfloat16", "num_layers": 24, "num_heads": 14}}
    """
    run = case.run
    ledger = claims(run, case.facts.generation_versions)
    trained, served = case.facts.models.get(run.model.name), case.facts.models.get(run.generation.model)
    if not ledger or not isinstance(trained, ModelFacts) or not isinstance(served, ModelFacts):
        return
    memory, params = _gpu_memory_gib(case), num_parameters(trained)
    unknown = _unknown(case, memory, params)
    if memory is None or params is None or unknown:
        how = "set hardware.gpu_memory_gib, or check there" if memory is None else "the first steps of a run"
        yield skipped(f"{unknown}, so memory is not added up", how)
        return
    kind = generation_kind(run.generation)
    training = trainer_need(run, params, world_size(run))
    if kind.vllm:
        share = memory_share(run)
        engine = generation_need(run, served, num_parameters(served) or params, engine_size(run))
        if engine.gib > share * memory:
            yield _too_much("generation", engine, share * memory, f"{share:g} of {memory:g} GiB", case)
        asleep = run.generation.args.get("enable_sleep_mode") or run.trainer.args.get("vllm_enable_sleep_mode")
        left = memory if asleep else memory * (1 - share)
        if not kind.server and training.gib > left:
            yield _too_much("trainer", training, left, f"{memory:g} GiB less the engine's {share:g}", case)
            return
    if training.gib > memory:
        yield _too_much("trainer", training, memory, f"{memory:g} GiB", case)


def _unknown(case: Case, memory: float | None, params: float | None) -> str:
    """What keeps the sum from being made; '' = nothing."""
    run, args = case.run, case.run.trainer.args
    if memory is None:
        return "the memory of a GPU is not known"
    if params is None:
        return "the size of the model's weights is not known"
    if run.trainer.kind == "command" or run.launcher.config or args.get("fsdp") or args.get("deepspeed"):
        return "how the trainer shards its weights is said elsewhere (a file, fsdp, a foreign program)"
    return ""


def _too_much(part: str, need: Need, room: float, what: str, case: Case) -> Finding:
    return Finding(
        severity="warning",
        values={
            f"{part} needs": f"{need.gib:.1f} GiB",
            "there is": f"{room:.1f} GiB",
            "model.name": case.run.model.name,
        },
        problem=f"the {part} needs at least {need.gib:.1f} GiB on each GPU, and has {room:.1f} ({what}): {need.terms}",
        why="It would run out of memory, minutes after the start.",
        fix="raise launcher.zero_stage or the number of processes, use trainer.lora.r, or change gpu_memory_utilization"
        if part == "trainer"
        else "raise generation.tensor_parallel_size or gpu_memory_utilization, or lower generation.max_model_len",
    )


def _gpu_memory_gib(case: Case) -> float | None:
    declared = case.run.hardware.gpu_memory_gib
    if declared is not None:
        return declared
    seen = () if isinstance(case.facts.gpus, str) else case.facts.gpus
    return min((gpu.memory_gib for gpu in seen if gpu.memory_gib is not None), default=None)


def shared_memory_too_small(case: Case) -> Iterator[Finding]:
    """Shared memory has room for what passes through it.

    ## What it checks
    Free bytes in /dev/shm: against the weights where the vLLM server takes them through a file
    (`generation.weight_sync.backend=safetensors`), and against 1 GiB where several processes use NCCL.
    ## Why it matters
    A container has 64 MiB by default: NCCL fails with "unhandled system error", and weights travel over the disk.
    ## Bad
        generation=vllm launcher=torchrun launcher.gpus=[0,1]
        facts: {"shm_free_bytes": 67108864}
    ## Good
        generation=vllm launcher=torchrun launcher.gpus=[0,1]
        facts: {"shm_free_bytes": 17179869184}
    """
    free = case.facts.shm_free_bytes
    if not claims(case.run, case.facts.generation_versions) or written_for_elsewhere(case):
        return
    needed, what = 0, ""
    if world_size(case.run) > 1 or engine_size(case.run) > 1:
        needed, what = GIB, "NCCL's buffers"
    model = case.facts.models.get(case.run.model.name)
    through_file = case.run.generation.weight_sync.backend == "safetensors" and case.run.generation.kind == "vllm"
    if through_file and isinstance(model, ModelFacts) and (model.weight_bytes or 0) > needed:
        needed, what = model.weight_bytes or 0, "the weights"
    if needed and isinstance(free, str):
        yield skipped(f"free space in /dev/shm is not known ({free})", "check on the machine that trains")
    elif needed and not isinstance(free, str) and free < needed:
        yield Finding(
            severity="warning",
            values={"shared memory free": f"{free / GIB:.2f} GiB", "needed": f"{needed / GIB:.2f} GiB"},
            problem=f"shared memory (/dev/shm) has {free / GIB:.2f} GiB free, and {what} need {needed / GIB:.2f} GiB",
            why="Processes of one machine exchange data there; a container has 64 MiB unless told otherwise.",
            fix="start the container with --shm-size=16g (or --ipc=host)",
        )


def disk_too_small(case: Case) -> Iterator[Finding]:
    """The run directory has room for checkpoints and for weights on their way.

    ## What it checks
    Free bytes below `runs_dir` against one copy of the weights for the transfer, and one checkpoint (weights and two
    moments) more than `trainer.args.save_total_limit` (1 where checkpoints are not limited).
    ## Why it matters
    A full disk ends the run at a checkpoint, hours in, and the checkpoint is cut.
    ## Bad
        model.dtype=float32
        facts: {"run_dir_free_bytes": 1000000, "model": {"weight_bytes": 1000000000, "weight_dtype": "float32"}}
    ## Good
        model.dtype=float32
        facts: {"run_dir_free_bytes": 100000000000, "model": {"weight_bytes": 1000000000, "weight_dtype": "float32"}}
    """
    free, model = case.facts.run_dir_free_bytes, case.facts.models.get(case.run.model.name)
    if isinstance(free, str) or not isinstance(model, ModelFacts) or not model.weight_bytes:
        return
    if case.run.trainer.kind == "command" or written_for_elsewhere(case):
        return
    args = case.run.trainer.args
    limit = args.get("save_total_limit")
    copies = 0 if args.get("save_strategy") == "no" else 1 + (limit if isinstance(limit, int) else 1)
    full = 1 if case.run.trainer.lora.r is not None or args.get("save_only_model") is True else 3
    needed = model.weight_bytes * (1 + copies * full)
    if free < needed:
        yield Finding(
            severity="warning",
            values={
                "runs_dir": case.run.runs_dir,
                "free": f"{free / GIB:.2f} GiB",
                "needed": f"{needed / GIB:.2f} GiB",
            },
            problem=f"{case.run.runs_dir} has {free / GIB:.2f} GiB free; {copies} checkpoints and one transfer need "
            f"{needed / GIB:.2f} GiB",
            why="A full disk ends the run at a checkpoint, and cuts it.",
            fix="set runs_dir to a larger disk, or lower trainer.args.save_total_limit",
        )
