"""SYN: how weights travel."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from packaging.version import Version

from orchestrator.adapters import DEFAULT_LORA_RANK, LORA_RANKS, legal_rank, sends_adapters
from orchestrator.findings import Finding
from orchestrator.kinds import generation_kind
from orchestrator.rules.case import Case
from orchestrator.rules.versions import PLAIN_SERVER, version_of

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


def adapter_rank_too_large(case: Case) -> Iterator[Finding]:
    """A server that loads adapters takes the trainer's rank.

    ## What it checks
    `trainer.lora.r` against vLLM's `max_lora_rank` with `enable_lora`, and that the latter is one of those that vLLM
    has buffers for. Left out it is 16, or, with `generation.weight_sync.lora: adapter`, the least that takes the rank.
    ## Why it matters
    The server refuses the first adapter.
    ## Bad
        generation=vllm trainer.lora.r=32 generation.args.enable_lora=true generation.args.max_lora_rank=16
        generation=vllm trainer.lora.r=32 generation.args.enable_lora=true
        generation=vllm trainer.lora.r=24 generation.args.enable_lora=true generation.args.max_lora_rank=24
        generation=vllm trainer.lora.r=600 generation.weight_sync.lora=adapter
    ## Good
        generation=vllm trainer.lora.r=32 generation.args.enable_lora=true generation.args.max_lora_rank=32
    """
    rank, args = case.run.trainer.lora.r, case.run.generation.args
    takes_adapters = args.get("enable_lora") is True or sends_adapters(case.run)
    most = args.get("max_lora_rank", legal_rank(rank or 1) if sends_adapters(case.run) else DEFAULT_LORA_RANK)
    if takes_adapters and most not in LORA_RANKS:
        yield Finding(
            values={"generation.args.max_lora_rank": most},
            problem=f"max_lora_rank = {most} is none of {', '.join(map(str, LORA_RANKS))}",
            why="vLLM builds its buffers for these ranks only, and refuses to start with another.",
            fix=f"set generation.args.max_lora_rank={legal_rank(rank or 1)}",
        )
    if rank is not None and takes_adapters and isinstance(most, int) and rank > most:
        yield Finding(
            values={"trainer.lora.r": rank, "generation.args.max_lora_rank": most},
            problem=f"the trainer's adapters have rank {rank}, the server takes at most {most}",
            why="vLLM refuses the first adapter that is sent.",
            fix=f"set generation.args.max_lora_rank={legal_rank(rank)}"
            if rank <= LORA_RANKS[-1]
            else f"lower trainer.lora.r to {LORA_RANKS[-1]}, the most that vLLM takes",
        )


def offloaded_weights(case: Case) -> Iterator[Finding]:
    """Weights that live in the machine's memory reach the GPU's group.

    ## What it checks
    FSDP with offloaded parameters (`trainer.args.fsdp`, `fsdp_config`) beside NCCL weight sync. An error before TRL
    1.11, which ignored the server's failed answer; a warning from there on.
    ## Why it matters
    NCCL takes tensors on a GPU only. Old clients then wait at the first sync for ever.
    ## Bad
        generation=vllm_nccl 'trainer.args.fsdp_config={offload_params: true}'
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
