"""Facts as plain data. A string in the place of a fact is the reason why it is not known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.data import DataFacts
from orchestrator.fields.source import FieldFact
from rewards.calling.signature import Signature


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU of this machine that the run may use."""

    index: int
    name: str
    memory_gib: float | None
    """None = not reported: the GPU shares the machine's memory."""
    capability: float | None = None
    """Compute capability, e.g. 8.0; None = not reported."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the files of a checkpoint say. None = the files do not say."""

    path: str
    vocab_size: int
    """Rows of the embedding."""
    max_positions: int | None
    num_tokens: int | None
    """Tokens of the tokenizer, added ones included; None without a tokenizer.json."""
    has_chat_template: bool
    num_base_tokens: int | None = None
    """Tokens of the tokenizer without the added ones."""
    num_heads: int | None = None
    """Attention heads."""
    num_kv_heads: int | None = None
    """Heads of the KV cache; 1 with multi-query or latent attention (MLA), whose cache no two GPUs share out."""
    num_layers: int | None = None
    head_dim: int | None = None
    weight_bytes: int | None = None
    """Bytes of the *.safetensors files."""
    weight_dtype: str | None = None
    """dtype that the config says the files have."""
    num_experts: int = 0
    """0 = a dense model."""
    tied_embeddings: bool | None = None
    generation_eos_ids: tuple[int, ...] | None = None
    """Ids that end a completion for a server: generation_config.json, else config.json."""
    tokenizer_eos_id: int | None = None
    """The id that ends a completion for TRL: the tokenizer's eos_token."""
    tokenizer_sha256: str | None = None
    """Of tokenizer.json."""
    prompt_files_sha256: str | None = None
    """Of every file that decides how a prompt becomes tokens: the tokenizer's, its config, the chat template."""
    weights_on_disk: bool = True
    """False = only the small files were fetched, and `weight_bytes` is what the hub says."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentSize:
    """The process environment that every child inherits."""

    variables: int
    total_bytes: int
    longest_name: str
    longest_bytes: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All of it."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Installed version by package, in the trainer's interpreter; a package that is not installed is absent."""
    requirements: Mapping[str, str] = field(default_factory=dict)
    """Package -> version specifier that the installed TRL's metadata demands, extras included."""
    generation_versions: Mapping[str, str] | str = "the generation service has no interpreter of its own"
    """The same in the interpreter of the generation service."""
    models: Mapping[str, ModelFacts | str] = field(default_factory=dict)
    """By the name that the recipe uses."""
    data: DataFacts | str = "not looked at"
    heldout: DataFacts | str | None = None
    """None where the recipe wants no evaluation."""
    prompt_tokens: Mapping[int, int] | str = "not counted"
    """Prompt length in tokens, chat template included -> how many training rows have it."""
    signatures: Mapping[str, Signature | str] = field(default_factory=dict)
    """Of the reward functions, by target."""
    hook_signature: Signature | str | None = None
    """Of the post-process hook; None where the recipe names none."""
    trainer_fields: Mapping[str, FieldFact] | str = "not looked at"
    generation_fields: Mapping[str, FieldFact] | str = "not looked at"
    """Arguments of the vLLM engine in the generation service's interpreter."""
    launcher_config: Mapping[str, Any] | str | None = None
    """Content of `launcher.config`; None where the recipe names no file."""
    gpus: tuple[Gpu, ...] | str = "not looked at"
    """GPUs of this machine; () = there is none."""
    busy_ports: Mapping[int, str] = field(default_factory=dict)
    """Port -> who listens there, of the fixed ports that a part of the run would bind."""
    listening: frozenset[int] | str = "not looked at"
    """TCP ports of this machine that somebody listens on and that loopback reaches."""
    programs: frozenset[str] = frozenset()
    """Interpreters and programs of the recipe that can be run."""
    environment: frozenset[str] = frozenset()
    """Names of the environment variables that are set; never their values."""
    environment_size: EnvironmentSize | None = None
    num_cpus: int = 1
    shm_free_bytes: int | str = "not looked at"
    """Free space in /dev/shm."""
    run_dir_free_bytes: int | str = "not looked at"
    """Free space where `runs_dir` is, or would be made."""

    @property
    def vllm_version(self) -> str | None:
        """Of the generation service's vLLM; None where it is not known or has none."""
        known = self.generation_versions
        return None if isinstance(known, str) else known.get("vllm")
