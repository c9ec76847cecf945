"""SYN: how completions are asked for and how weights travel."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from packaging.version import Version

from orchestrator.findings import Finding
from orchestrator.kinds import generation_kind, through_our_client
from orchestrator.rules.case import Case
from orchestrator.rules.versions import PLAIN_SERVER, version_of


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
        generation=vllm trainer.args.vllm_importance_sampling_correction=true
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
        generation=vllm trainer.args.use_vllm=false
    ## Good
        generation=vllm trainer.args.use_vllm=true trainer.args.vllm_mode=server
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
                fix=f"remove {path} and set generation.{name}={given}",
            )


SYNC_BREAKERS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "load_format": (lambda v: v == "dummy", "starts with random weights, and tensors that are not sent stay random"),
    "quantization": (lambda v: v is not None, "keeps the weights in another form than the trainer sends"),
    "logprobs_mode": (lambda v: v != "processed_logprobs", "reports log-probs of another distribution than it samples"),
}
"""vLLM's argument -> which values harm, and how."""


def engine_unfit_for_training(case: Case) -> Iterator[Finding]:
    """The engine takes trained weights as they are, and reports the log-probs it samples with.

    ## What it checks
    `generation.args` of a vLLM engine: `load_format: dummy`, `quantization`, a `logprobs_mode` other than
    `processed_logprobs`. A warning: some versions re-quantise what they are sent.
    ## Why it matters
    The first weight update fails on shapes, or the ratio of policies is wrong from the first step.
    ## Bad
        generation=vllm generation.args.quantization=fp8
        generation=colocate generation.args.load_format=dummy
    ## Good
        generation=vllm generation.args.logprobs_mode=processed_logprobs
    """
    generation = case.run.generation
    if not generation_kind(generation).vllm:
        return
    for key, (harms, how) in SYNC_BREAKERS.items():
        value = generation.args.get(key)
        if key in generation.args and harms(value):
            yield Finding(
                severity="warning",
                values={
                    f"generation.args.{key}": value,
                    "generation.weight_sync.backend": generation.weight_sync.backend,
                },
                problem=f"with {key} = {value} the engine {how}",
                why="The weight update fails, or the policy that samples is not the one that is trained.",
                fix=f"remove generation.args.{key}",
            )


LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""vLLM's legal values of max_lora_rank."""
DEFAULT_LORA_RANK = 16
"""vLLM's default of max_lora_rank."""


def adapter_rank_too_large(case: Case) -> Iterator[Finding]:
    """A server that loads adapters takes the trainer's rank.

    ## What it checks
    `trainer.lora.r` against vLLM's `max_lora_rank` (default 16) with `enable_lora`, and that the latter is one of the
    ranks that vLLM has buffers for.
    ## Why it matters
    The server refuses the first adapter.
    ## Bad
        generation=vllm trainer.lora.r=32 generation.args.enable_lora=true generation.args.max_lora_rank=16
        generation=vllm trainer.lora.r=32 generation.args.enable_lora=true
        generation=vllm trainer.lora.r=24 generation.args.enable_lora=true generation.args.max_lora_rank=24
    ## Good
        generation=vllm trainer.lora.r=32 generation.args.enable_lora=true generation.args.max_lora_rank=32
    """
    rank, args = case.run.trainer.lora.r, case.run.generation.args
    most = args.get("max_lora_rank", DEFAULT_LORA_RANK)
    if args.get("enable_lora") is True and most not in LORA_RANKS:
        yield Finding(
            values={"generation.args.max_lora_rank": most},
            problem=f"max_lora_rank = {most} is none of {', '.join(map(str, LORA_RANKS))}",
            why="vLLM builds its buffers for these ranks only, and refuses to start with another.",
            fix=f"set generation.args.max_lora_rank={_legal_rank(rank or 1)}",
        )
    if rank is not None and args.get("enable_lora") is True and isinstance(most, int) and rank > most:
        yield Finding(
            values={"trainer.lora.r": rank, "generation.args.max_lora_rank": most},
            problem=f"the trainer's adapters have rank {rank}, the server takes at most {most}",
            why="vLLM refuses the first adapter that is sent.",
            fix=f"set generation.args.max_lora_rank={_legal_rank(rank)}"
            if rank <= LORA_RANKS[-1]
            else f"lower trainer.lora.r to {LORA_RANKS[-1]}, the most that vLLM takes",
        )


def _legal_rank(rank: int) -> int:
    return next((legal for legal in LORA_RANKS if legal >= rank), LORA_RANKS[-1])


def offloaded_weights(case: Case) -> Iterator[Finding]:
    """Weights that live in the machine's memory reach the GPU's group.

    ## What it checks
    FSDP with offloaded parameters (`trainer.args.fsdp`, `fsdp_config`) beside NCCL weight sync. An error before TRL
    1.11, which ignored the server's failed answer; a warning from there on.
    ## Why it matters
    NCCL takes tensors on a GPU only. Old clients then wait at the first sync for ever.
    ## Bad
        generation=vllm 'trainer.args.fsdp_config={offload_params: true}'
        facts: {"versions": {"trl": "1.9.0"}}
    ## Good
        generation=vllm launcher=deepspeed launcher.zero_stage=3 launcher.offload=true
    """
    run, args = case.run, case.run.trainer.args
    config = args.get("fsdp_config")
    named = [key for key in ("offload_params", "cpu_offload", "fsdp_offload_params") if _on(config, key)]
    offloaded = bool(named) or "offload" in str(args.get("fsdp") or "")
    if not offloaded or run.generation.kind != "vllm" or run.generation.weight_sync.backend != "nccl":
        return
    trl = version_of(case.facts.versions, "trl")
    old = trl is not None and trl < PLAIN_SERVER
    yield Finding(
        severity="error" if old else "warning",
        values={
            "trainer.args.fsdp_config": config or args.get("fsdp"),
            "generation.weight_sync.backend": "nccl",
            "trl": str(trl),
        },
        problem="FSDP keeps the weights in the machine's memory, and NCCL sends from a GPU only",
        why="The run hangs at the first sync: this trl ignores the server's error."
        if old
        else "Each weight is copied to the GPU for every sync; a tensor that is missed hangs the group.",
        fix="set offload_params to false" + (", or install trl>=1.11" if old else ""),
    )


def _on(config: object, key: str) -> bool:
    return isinstance(config, dict) and str(config.get(key)).lower() == "true"


SLEEP_BUG = (Version("0.25"), Version("1.0"))
"""TRL put colocated engines to sleep level 2, which drops the weights, from 0.25; the next rollout used what was left.
Mended in 1.0 (huggingface/trl issue 5312)."""
ADAPTER_BUG = Version("1.14")
"""AsyncGRPO sends adapters from here on (huggingface/trl pull request 7017)."""


def sleep_discards_weights(case: Case) -> Iterator[Finding]:
    """A colocated engine that sleeps wakes with the trained weights.

    ## What it checks
    `enable_sleep_mode` with `generation=colocate` and a TRL of the affected range (0.25 up to, not including, 1.0).
    ## Why it matters
    The policy that generates never changes, or is noise, while the loss looks usual.
    ## Bad
        generation=colocate generation.args.enable_sleep_mode=true
        facts: {"versions": {"trl": "0.26.2"}}
    ## Good
        generation=colocate generation.args.enable_sleep_mode=true
        facts: {"versions": {"trl": "1.16.0"}}
    """
    run = case.run
    asleep = run.generation.args.get("enable_sleep_mode") or run.trainer.args.get("vllm_enable_sleep_mode")
    trl = version_of(case.facts.versions, "trl")
    if run.generation.kind == "colocate" and asleep and trl is not None and SLEEP_BUG[0] <= trl < SLEEP_BUG[1]:
        yield Finding(
            severity="warning",
            values={"generation.args.enable_sleep_mode": True, "trl": str(trl)},
            problem=f"trl {trl} loses a sleeping engine's weights between rollouts",
            why="Completions come from a policy that does not change, and nothing says so.",
            fix="pip install 'trl>=1.0', or leave enable_sleep_mode off",
        )


def async_without_adapters(case: Case) -> Iterator[Finding]:
    """An asynchronous trainer's adapters are used by the server.

    ## What it checks
    `trainer.kind=async_grpo` with `trainer.lora` and TRL before 1.14.
    ## Why it matters
    Requests sample the base model, not the adapter: the reward stays flat.
    ## Bad
        trainer.kind=async_grpo trainer.lora.r=8 generation=vllm generation.args.enable_lora=true
        facts: {"versions": {"trl": "1.12.0"}}
    ## Good
        trainer.kind=async_grpo trainer.lora.r=8 generation=vllm generation.args.enable_lora=true
        facts: {"versions": {"trl": "1.16.0"}}
    """
    trl = version_of(case.facts.versions, "trl")
    lora = case.run.trainer.lora.r
    if case.run.trainer.kind == "async_grpo" and lora is not None and trl is not None and trl < ADAPTER_BUG:
        yield Finding(
            severity="warning",
            values={"trainer.kind": "async_grpo", "trainer.lora.r": lora, "trl": str(trl)},
            problem=f"the asynchronous trainer of trl {trl} does not send adapters; requests sample the base model",
            why="The reward stays flat while the loss moves.",
            fix=f"pip install 'trl>={ADAPTER_BUG}'",
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
        generation=vllm reward.environment.max_turns=3 generation.max_model_len=64
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
            fix="use generation=vllm (TRL's own rollouts), or remove reward.environment",
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
