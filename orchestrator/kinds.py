"""What each kind of part is, as data: rules, plan and resolve ask here, so that a new kind is one line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.schema import GenerationConfig, RunConfig


@dataclass(frozen=True, kw_only=True)
class GenerationKind:
    server: bool
    """It is a process of its own, with an address."""
    started: bool
    """The run starts and stops it."""
    vllm: bool
    """The engine is vLLM, so it takes vLLM's arguments, and GPUs unless `generation.cpu` says otherwise."""
    clamps: bool
    """It shortens a completion that does not fit the context; the others refuse the request."""


GENERATION_KINDS: Mapping[str, GenerationKind] = {
    "embedded": GenerationKind(server=True, started=True, vllm=False, clamps=False),
    "vllm": GenerationKind(server=True, started=True, vllm=True, clamps=False),
    "external": GenerationKind(server=True, started=False, vllm=False, clamps=False),
    "colocate": GenerationKind(server=False, started=False, vllm=True, clamps=True),
    "inprocess": GenerationKind(server=False, started=False, vllm=False, clamps=True),
}

STARTED_REWARD = "local"
"""The kind of reward server that the run starts."""

STARTABLE: Mapping[str, tuple[Any, ...]] = {
    "trainer.kind": ("grpo",),
    "launcher.kind": ("python",),
    "model.add_tokens": ([],),
}
"""Setting -> the values that this version can run. The others are checked all the same."""


def generation_kind(generation: GenerationConfig) -> GenerationKind:
    return GENERATION_KINDS[generation.kind]


def through_our_client(run: RunConfig) -> bool:
    """Completions are asked for by our rollout code; otherwise TRL's own vLLM or transformers path generates."""
    kind = generation_kind(run.generation)
    own = run.trainer.kind in ("grpo", "rloo", "online_dpo", "ppo")
    return own and kind.server and run.generation.weight_sync.backend != "nccl"


def not_startable(run: RunConfig) -> Iterator[tuple[str, Any]]:
    """(setting, value) of each part that this version checks but cannot run."""
    chosen: dict[str, Any] = {
        "trainer.kind": run.trainer.kind,
        "launcher.kind": run.launcher.kind,
        "model.add_tokens": run.model.add_tokens,
    }
    return ((path, kind) for path, kind in chosen.items() if kind not in STARTABLE[path])
