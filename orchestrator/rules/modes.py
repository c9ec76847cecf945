"""SYN and CFG: how completions are asked for: TRL's modes, our rollouts, the engine's settings."""

from collections.abc import Iterator

from orchestrator.findings import Finding
from orchestrator.kinds import generation_kind, through_our_client
from orchestrator.rules.case import Case


def vllm_settings_ignored(case: Case) -> Iterator[Finding]:
    """TRL's own vLLM settings are not mixed with our rollouts.

    ## What it checks
    `trainer.args.use_vllm` (an error) and other `vllm_*` fields (a warning) beside a generation kind that generates
    through our client.
    ## Why it matters
    With `use_vllm` TRL opens a vLLM client of its own; the other fields change nothing without it, importance-sampling
    correction included.
    ## Bad
        trainer.args.use_vllm=true
        trainer.args.vllm_importance_sampling_correction=true
    ## Good
        trainer.args.use_vllm=false
        generation=vllm_nccl trainer.args.vllm_importance_sampling_correction=true
    """
    args, kind = case.run.trainer.args, case.run.generation.kind
    if not through_our_client(case.run):
        return
    if args.get("use_vllm") is True:
        yield Finding(
            values={"trainer.args.use_vllm": True, "generation.kind": kind},
            problem=f"use_vllm makes TRL connect to a vLLM server; generation.kind = {kind} is none that it can use",
            why="TRL would wait for a server of another protocol.",
            fix="remove trainer.args.use_vllm: completions come from the generation service of the recipe",
        )
    for key in sorted(key for key in args if key.startswith("vllm_") and args[key] is not None):
        yield Finding(
            severity="warning",
            values={f"trainer.args.{key}": args[key], "generation.kind": kind},
            problem=f"trainer.args.{key} changes nothing with generation.kind = {kind}",
            why="TRL reads it only with use_vllm=true.",
            fix=f"remove trainer.args.{key}; generation.* describes the server",
        )


SERVER_FIELDS = ("vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_group_port")
"""TRL's fields that only its server mode reads."""


def mode_contradicts_kind(case: Case) -> Iterator[Finding]:
    """TRL's vLLM mode is the one that `generation.kind` means.

    ## What it checks
    `trainer.args.use_vllm`, `vllm_mode` and the `vllm_server_*` fields against `generation.kind`: vllm is TRL's server
    mode, colocate its colocate mode, inprocess no vLLM at all. A mode without `use_vllm` is a warning: TRL ignores it.
    ## Why it matters
    TRL waits for a server that nobody starts, or loads an engine that the recipe does not mean.
    ## Bad
        generation=colocate trainer.args.vllm_mode=server
        generation=inprocess trainer.args.use_vllm=true trainer.args.vllm_mode=server
        generation=colocate trainer.args.vllm_server_host=10.0.0.2 trainer.args.vllm_server_port=20901
        generation=inprocess trainer.args.vllm_mode=colocate
        generation=vllm_nccl trainer.args.use_vllm=false
    ## Good
        generation=vllm_nccl trainer.args.use_vllm=true trainer.args.vllm_mode=server
        generation=colocate trainer.args.vllm_mode=colocate
    """
    run, args = case.run, case.run.trainer.args
    if through_our_client(run) or run.trainer.kind == "command":
        return
    kind = run.generation.kind
    mode = {"vllm": "server", "external": "server", "colocate": "colocate"}.get(kind)
    said, given = args.get("use_vllm"), args.get("vllm_mode")
    values = {"generation.kind": kind} | {
        f"trainer.args.{key}": args[key]
        for key in ("use_vllm", "vllm_mode", *SERVER_FIELDS)
        if args.get(key) is not None
    }
    why, fix = (
        "TRL would wait for a server that nobody starts, or load another engine.",
        "remove the trainer.args shown",
    )
    if mode is None and said is True:
        service = "" if given == "colocate" else ", and the recipe has no generation service that it could ask"
        yield Finding(
            values=values,
            problem=f"use_vllm = true in mode {given or 'colocate'} with generation.kind = {kind}{service}",
            why=why,
            fix="choose generation=vllm (a server that the run starts) or generation=colocate; "
            "generation=external for one that somebody else runs",
        )
    elif mode is None and given is not None:
        yield Finding(
            severity="warning",
            values=values,
            problem=f"vllm_mode = {given} is set, and vLLM is not switched on",
            why="TRL reads it only with use_vllm=true and generates with transformers.",
            fix=f"choose generation={'colocate' if given == 'colocate' else 'vllm'}, or remove trainer.args.vllm_mode",
        )
    elif mode is not None and (said is False or given not in (None, mode)):
        yield Finding(
            values=values,
            problem=f"generation.kind = {kind} is TRL's vllm_mode {mode}, and trainer.args say "
            + (f"vllm_mode = {given}" if said is not False else "use_vllm = false"),
            why=why,
            fix=fix,
        )
    elif mode == "colocate" and any(args.get(key) is not None for key in SERVER_FIELDS):
        yield Finding(
            values=values,
            problem="generation.kind = colocate runs inside the trainer, and trainer.args name a server: "
            + ", ".join(f"{key} = {args[key]}" for key in SERVER_FIELDS if args.get(key) is not None),
            why="One of the two is not meant; with a server named, TRL still starts its own engine.",
            fix="remove the server's address, or choose generation=external (or vllm)",
        )


ENGINE_FIELDS = {
    "vllm_tensor_parallel_size": "tensor_parallel_size",
    "vllm_max_model_length": "max_model_len",
    "vllm_gpu_memory_utilization": "args.gpu_memory_utilization",
    "vllm_enable_sleep_mode": "args.enable_sleep_mode",
}
"""TRL's field for a colocated engine -> the recipe's, below `generation`."""


ENGINE_ARGS = (
    "model",
    "revision",
    "dtype",
    "max_model_len",
    "tensor_parallel_size",
    "data_parallel_size",
    "host",
    "port",
)
"""vLLM's arguments that `generation` has a setting for."""


def engine_settings_disagree(case: Case) -> Iterator[Finding]:
    """Settings of the engine are said once.

    ## What it checks
    Of a colocated engine, TRL's `vllm_*` fields against the `generation` settings of the same meaning; of every vLLM
    engine, `generation.args` against `generation` settings (model, dtype, max_model_len, parallel sizes, address).
    ## Why it matters
    The rules check one number, and the engine gets the other.
    ## Bad
        generation=colocate generation.tensor_parallel_size=1 trainer.args.vllm_tensor_parallel_size=2
        generation=colocate trainer.args.vllm_max_model_length=2048
        generation=vllm generation.args.max_model_len=2048
        generation=vllm generation.args.port=9000
    ## Good
        generation=colocate trainer.args.vllm_max_model_length=24
        generation=vllm generation.args.max_num_seqs=64
    """
    generation, args = case.run.generation, case.run.trainer.args
    said = []
    if generation_kind(generation).vllm:
        said += [(f"generation.args.{key}", generation.args.get(key), key) for key in ENGINE_ARGS]
    if generation.kind == "colocate":
        said += [(f"trainer.args.{key}", args.get(key), name) for key, name in ENGINE_FIELDS.items()]
    for path, given, name in said:
        inner = name.removeprefix("args.")
        meant = generation.args.get(inner) if name.startswith("args.") else getattr(generation, name)
        if given is not None and meant is not None and given != meant:
            yield Finding(
                values={path: given, f"generation.{name}": meant},
                problem=f"{path} = {given}, and generation.{name} = {meant}",
                why="One of the two is not what the engine gets.",
                fix=f"remove {path}, or set generation.{name}={given} in its place",
            )


def environment_beside_our_rollouts(case: Case) -> Iterator[Finding]:
    """Tools and environments are used on a path that calls them.

    ## What it checks
    `reward.environment` (addresses, several turns, own requests) beside a generation kind that generates through our
    client.
    ## Why it matters
    Our rollouts are one turn: the environment would never be asked, and its reward would be missing.
    ## Bad
        reward.environment.max_turns=3
        reward.environment.urls=[http://127.0.0.1:9000]
    ## Good
        generation=vllm_nccl reward.environment.max_turns=3 generation.max_model_len=64
    """
    environment = case.run.reward.environment
    used = {
        "reward.environment.urls": environment.urls,
        "reward.environment.max_turns": environment.max_turns if (environment.max_turns or 1) > 1 else None,
        "reward.environment.calls_model": environment.calls_model,
    }
    set_ = {path: value for path, value in used.items() if value}
    if set_ and through_our_client(case.run):
        yield Finding(
            values=set_ | {"generation.kind": case.run.generation.kind},
            problem=f"rollouts with generation.kind = {case.run.generation.kind} have one turn and no environment",
            why="The environment would never be asked.",
            fix="use generation=vllm_nccl (TRL's own rollouts), or remove reward.environment",
        )


def generation_fields_ignored(case: Case) -> Iterator[Finding]:
    """Sampling settings are ones that our client sends.

    ## What it checks
    `generation_kwargs`, `cache_implementation`, `use_transformers_continuous_batching` and chat-template arguments,
    which only TRL's own in-process generation reads.
    ## Why it matters
    Completions would be sampled without them.
    ## Bad
        'trainer.args.generation_kwargs={typical_p: 0.9}'
        trainer.args.cache_implementation=static
    ## Good
        trainer.args.top_p=0.9
    """
    if not through_our_client(case.run):
        return
    for key in (
        "generation_kwargs",
        "cache_implementation",
        "use_transformers_continuous_batching",
        "use_transformers_paged",
    ):
        value = case.run.trainer.args.get(key)
        if value:
            yield Finding(
                values={f"trainer.args.{key}": value, "generation.kind": case.run.generation.kind},
                problem=f"trainer.args.{key} is read only by generation inside the trainer",
                why="Completions come from the generation server, which would not be told.",
                fix=f"remove trainer.args.{key}; temperature, top_p, top_k, min_p and repetition_penalty are sent",
            )
