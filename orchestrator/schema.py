"""The recipe as a tree of dataclasses. Every field that exists works; an unknown key is a finding (CFG001).

Units are in the names: `_s` seconds, `_length` and `_len` tokens, `num_` counts. Fields are mutable because OmegaConf
fills them; nothing changes a RunConfig after `compose.resolve`.
"""

from dataclasses import dataclass, field
from typing import Any

AUTO = "auto"
"""The value of a `port` that is picked when the run starts."""


def choice(default: str, *others: str) -> Any:
    """A string field that takes one of a few words; rule CFG004 compares."""
    return field(default=default, metadata={"choices": (default, *others)})


@dataclass(kw_only=True)
class ModelConfig:
    """The policy that is trained."""

    name: str = ""
    """Folder of a checkpoint: config, tokenizer, *.safetensors. Nothing is downloaded."""
    revision: str | None = None
    """Hub revision; None = the default branch."""
    dtype: str = choice("float32", "bfloat16", "float16")
    """Type of the trained weights."""
    trust_remote_code: bool = False
    """Run Python code that comes with the checkpoint. SEC002 warns."""


@dataclass(kw_only=True)
class LimitsConfig:
    """Facts that trainer and generation share."""

    prompt_length: int = 512
    """Tokens. A promise about the data: a longer prompt is an error or dropped (`data.long_prompts`), never cut."""
    completion_length: int = 256
    """Tokens that one completion may have."""
    generations: int = 8
    """Completions per prompt (the group size)."""


@dataclass(kw_only=True)
class DataConfig:
    """Where prompts and gold answers come from."""

    source: str = choice("arithmetic", "jsonl")
    path: str | None = None
    """JSONL file with the training rows (`source: jsonl`); relative to the folder that orchestrate is called in."""
    heldout_path: str | None = None
    """JSONL file with the rows that are never trained on."""
    prompt: str = "prompt"
    """Column of the file that holds the prompt: a string or a list of messages."""
    columns: dict[str, str] = field(default_factory=dict)
    """Our column name -> the file's, for what reward functions read, e.g. {answer: gold}."""
    chat: bool = True
    """Wrap a string prompt as one user message; the model's chat template renders it."""
    rows: int | None = None
    """Training rows, drawn with `seed`; None = all that the source has."""
    seed: int = 0
    """Seed of generated rows (`source: arithmetic`)."""
    long_prompts: str = choice("error", "drop")
    """What happens to prompts above `limits.prompt_length`."""


@dataclass(kw_only=True)
class RewardFunctionConfig:
    """One reward function."""

    name: str = ""
    """Name in metrics and samples; unique."""
    target: str = ""
    """A built-in's name, `package.module:function` or `file.py:function` (relative to where orchestrate is called)."""
    weight: float = 1.0
    """Factor in the total reward."""
    granularity: str | None = field(default=None, metadata={"choices": (None, "sample", "group", "batch")})
    """What one call gets and what a time limit or an error hits; None = what the function declares."""
    key: str | None = None
    """Which entry of a returned dict is the reward."""
    params: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for every call."""


@dataclass(kw_only=True)
class RewardConfig:
    """Who scores completions."""

    kind: str = choice("local", "external", "inprocess")
    """local: our server, started by the run. external: someone else's. inprocess: inside the trainer."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of the server."""
    host: str = "127.0.0.1"
    """Address that the server binds."""
    port: int | str = AUTO
    url: str = ""
    """Where the trainer connects."""
    python: str | None = None
    """Interpreter of the server; None = the orchestrator's own."""
    workers: int = 1
    """Worker processes."""
    timeout_s: float = 10.0
    """Seconds that one unit (sample, group or batch) may take."""
    token_env: str | None = None
    """Name of the environment variable that holds the bearer token."""
    functions: list[RewardFunctionConfig] = field(default_factory=list)
    on_error: str = choice("fail", "mask")
    """fail: an error ends the run. mask: the sample has no reward and is counted."""


@dataclass(kw_only=True)
class WeightSyncConfig:
    """How trained weights reach the generation server, and how that is proven."""

    backend: str = choice("safetensors")
    verify_every: int = 10
    """Log-probs are compared at every n-th sync; the weight version at every one."""
    tolerance: float | None = None
    """Largest accepted gap in log-prob (nats); None = by dtype."""


@dataclass(kw_only=True)
class GenerationConfig:
    """Who samples completions."""

    kind: str = choice("embedded", "external")
    """embedded: our transformers server, started by the run. external: someone else's, never started or stopped."""
    env: dict[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int | str = AUTO
    url: str = ""
    """Where the trainer connects."""
    python: str | None = None
    model: str = ""
    """The model that the server loads; the trainer's (MOD001)."""
    revision: str | None = None
    dtype: str = choice("float32", "bfloat16", "float16")
    max_model_len: int = 768
    """Tokens of prompt and completion together that the server accepts."""
    max_batch_rows: int = 512
    """Sequences that the embedded server computes at once."""
    request_timeout_s: float = 600.0
    """Seconds that one generation or weight request may take."""
    weight_sync: WeightSyncConfig = field(default_factory=WeightSyncConfig)


@dataclass(kw_only=True)
class TrainerConfig:
    """The trainer; `args` are TRL's own field names, checked against the installed TRL."""

    kind: str = choice("grpo")
    env: dict[str, str] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class LauncherConfig:
    """How the trainer's processes start."""

    kind: str = choice("python")
    env: dict[str, str] = field(default_factory=dict)
    num_processes: int = 1


@dataclass(kw_only=True)
class EvaluationConfig:
    """Held-out evaluation through the live servers, before and after training."""

    rows: int = 100
    """Held-out prompts; 0 = none."""
    samples: int = 4
    """Completions per prompt at the training temperature; a greedy pass is always made too."""


@dataclass(kw_only=True)
class SupervisionConfig:
    """How long the orchestrator waits and how it stops things."""

    ready_timeout_s: float = 120.0
    """Seconds from a service's start until it must answer."""
    stop_grace_s: float = 3.0
    """Seconds between SIGTERM and SIGKILL, shared by all processes."""
    restarts: int = 0
    """How often a reward server that dies is started again. A generation server never is: it would hold old weights."""


@dataclass(kw_only=True)
class RunConfig:
    """The whole recipe."""

    name: str = "run"
    """Folder under `runs_dir`."""
    runs_dir: str = "runs"
    """Where run directories are made; relative to the folder that orchestrate is called in."""
    seed: int = 0
    """Seeds sampling, data order and the canary."""
    dry_run: bool = False
    """The same as the verb `check`."""
    model: ModelConfig = field(default_factory=ModelConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    data: DataConfig = field(default_factory=DataConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    launcher: LauncherConfig = field(default_factory=LauncherConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    supervision: SupervisionConfig = field(default_factory=SupervisionConfig)
