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
    attn_implementation: str | None = None
    """Attention code of transformers in the trainer, e.g. sdpa or flash_attention_2; None = transformers' choice."""
    add_tokens: list[str] = field(default_factory=list)
    """Tokens that the trainer adds to tokenizer and embedding first. A server that loads `name` lacks them."""


@dataclass(kw_only=True)
class HardwareConfig:
    """The machines that the recipe is written for. None = look at this machine (and skip what cannot be seen)."""

    machines: int | None = None
    """Machines that there are, all parts together."""
    gpus: int | None = None
    """GPUs of one machine."""
    gpu_memory_gib: float | None = None
    """Memory of one GPU."""
    cpus: int | None = None
    """Cores of one machine."""


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

    source: str = choice("arithmetic", "jsonl", "reasoning_gym")
    path: str | None = None
    """JSONL file with the training rows (`source: jsonl`); relative to the folder that orchestrate is called in."""
    heldout_path: str | None = None
    """JSONL file with the rows that are never trained on."""
    task: str | None = None
    """Name of a data set of reasoning_gym (`source: reasoning_gym`)."""
    params: dict[str, Any] = field(default_factory=dict)
    """That data set's own parameters, e.g. {max_terms: 2}. Its reward is the built-in `reasoning_gym`."""
    prompt: str = "prompt"
    """Column of the file that holds the prompt: a string or a list of messages."""
    columns: dict[str, str] = field(default_factory=dict)
    """Our column name -> the file's, for what reward functions read, e.g. {answer: gold}."""
    chat: bool = True
    """Wrap a string prompt as one user message; the model's chat template renders it."""
    rows: int | None = None
    """Training rows, drawn with `seed`; None = all that the source has."""
    seed: int = 0
    """Decides which rows, and in what order; for reasoning_gym the training rows only."""
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
    shape: str | None = field(
        default=None, metadata={"choices": (None, "trl", "vime_sample", "vime_group", "align_anything", "openrlhf")}
    )
    """Whose calling convention it was written for; None = what its parameters show (docs/rewards.md)."""
    key: str | None = None
    """Which entry of a returned dict is the reward."""
    eval_key: str | None = None
    """Which entry counts for held-out rows; None = `key`."""
    params: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for every call; functions that are called with `args` find them there."""
    only: dict[str, list[Any]] = field(default_factory=dict)
    """Data column -> the values of the rows that the function scores, e.g. {source: [gsm8k]}; other rows have no reward
    from it. {} = all rows."""


@dataclass(kw_only=True)
class PostProcessConfig:
    """A hook that sees whole groups with their rewards and returns (raw, processed); processed is trained on."""

    target: str = ""
    """`group_norm`, `package.module:function` or `file.py:function`; "" = none."""
    params: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for every call; a hook that is called with `args` finds them there."""


@dataclass(kw_only=True)
class JudgeConfig:
    """A model that others serve and reward functions ask: a judge, a reward model, a teacher."""

    url: str | None = None
    model: str = ""
    """Name that it is served under, or its folder."""
    max_model_len: int | None = None
    """Tokens of question, completion and verdict together that it accepts; None = not known."""
    template_length: int = 0
    """Tokens that its prompt has beside the question and the completion, its verdict included."""
    tensor_parallel_size: int = 1
    gpus: list[int] | None = None
    """GPUs that it holds on this machine."""
    gpu_memory_utilization: float | None = None
    """Share of each GPU's memory that it takes."""


@dataclass(kw_only=True)
class EnvironmentConfig:
    """An environment or tools that turn one completion into several turns."""

    urls: list[str] = field(default_factory=list)
    """Where environments listen that others run."""
    max_turns: int | None = None
    """Completions of one rollout; None = one, or not known."""
    max_input_length: int | None = None
    """Tokens that a turn's whole history may have; None = whatever fits."""
    calls_model: bool = False
    """The environment itself sends requests to the generation server, with a limit of its own."""
    max_output_tokens: int | None = None
    """Tokens that the environment asks for in one such request; None = the server's default."""


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
    post_process: PostProcessConfig = field(default_factory=PostProcessConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)


@dataclass(kw_only=True)
class WeightSyncConfig:
    """How trained weights reach the generation server, and how that is proven."""

    backend: str = choice("safetensors", "nccl")
    """safetensors: through a file. nccl: TRL's own, from GPU to GPU."""
    port: int | str = AUTO
    """TCP port of the NCCL group, the same on both ends."""
    verify_every: int = 10
    """Log-probs are compared at every n-th sync; the weight version at every one."""
    tolerance: float | None = None
    """Accepted gap in log-prob (nats): the largest of a probe's tokens in float32, their mean in half precision; None =
    by dtype (1e-3, float16 0.1, bfloat16 0.4)."""
    lora: str = choice("merged", "adapter")
    """With trainer.lora: merged: weights with the adapter in them. adapter: the adapter alone, which vLLM loads beside
    the weights that it started with."""


@dataclass(kw_only=True)
class GenerationConfig:
    """Who samples completions."""

    kind: str = choice("embedded", "vllm", "external", "colocate", "inprocess")
    """embedded: our transformers server, vllm: the real one, both started by the run. external: someone else's, never
    started or stopped. colocate: vLLM inside the trainer's processes, inprocess: the trainer's own model; no server."""
    env: dict[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int | str = AUTO
    url: str = ""
    """Where the trainer connects."""
    python: str | None = None
    cpu: bool = False
    """vLLM runs on the CPU: no GPU is counted for it."""
    model: str = ""
    """The model that the server loads; the trainer's (MOD001)."""
    revision: str | None = None
    dtype: str = choice("float32", "bfloat16", "float16")
    max_model_len: int = 768
    """Tokens of prompt and completion together that the server accepts."""
    tensor_parallel_size: int = 1
    """GPUs that one engine is spread over."""
    data_parallel_size: int = 1
    """Engines, each with a copy of the model."""
    gpus: list[int] | None = None
    """GPUs of the server on its machine; None = the first that no other part names."""
    num_machines: int = 0
    """Machines that only generate; 0 = the server shares the trainer's."""
    trusted_network: bool = False
    """The network between the parts is closed to others, so that a server that takes weights may be open to it."""
    args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the vLLM engine under vLLM's own names, checked against the vLLM that would run."""
    max_batch_rows: int = 512
    """Sequences that the embedded server computes at once."""
    ready_timeout_s: float | None = None
    """Seconds from the server's start until it must answer; None = supervision.ready_timeout_s."""
    request_timeout_s: float = 600.0
    """Seconds that one generation or weight request may take."""
    weight_sync: WeightSyncConfig = field(default_factory=WeightSyncConfig)


@dataclass(kw_only=True)
class LoraConfig:
    """Low-rank adapters instead of all weights. Names are PEFT's. model/ of the run then holds the adapter alone."""

    r: int | None = None
    """Rank; None = all weights are trained."""
    lora_alpha: float | None = None
    """The adapter counts lora_alpha / r times; None = PEFT's 8."""
    target_modules: list[str] | str | None = None
    """Names of modules, or all-linear; None = PEFT's choice for the architecture."""
    lora_dropout: float = 0.0
    """Share of an adapter's inputs that a training pass drops."""
    modules_to_save: list[str] | None = None
    """Modules that are trained whole beside the adapters, and saved with them."""
    bias: str = choice("none", "all", "lora_only")
    """Biases that are trained too."""
    use_rslora: bool = False
    """The adapter counts lora_alpha / sqrt(r) times (rank-stabilised LoRA)."""
    use_dora: bool = False
    """Weight-decomposed LoRA: a weight's size is trained apart from its direction."""


@dataclass(kw_only=True)
class TrainerConfig:
    """The trainer; `args` are TRL's own field names, checked against the installed TRL."""

    kind: str = choice("grpo", "rloo", "online_dpo", "async_grpo", "ppo", "ebft", "command")
    """A trainer of TRL's, one of ours (ppo, ebft), or any program (command)."""
    env: dict[str, str] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    """For `kind: command`: what the program is told by its own arguments (orchestrator/foreign.py)."""
    argv: list[str] = field(default_factory=list)
    """Program and arguments of `kind: command`."""
    lora: LoraConfig = field(default_factory=LoraConfig)


@dataclass(kw_only=True)
class LauncherConfig:
    """How the trainer's processes start."""

    kind: str = choice("python", "torchrun", "accelerate", "deepspeed")
    env: dict[str, str] = field(default_factory=dict)
    num_processes: int = 1
    """Processes on each machine."""
    num_machines: int = 1
    """Machines that train."""
    gpus: list[int] | None = None
    """GPUs of the trainer on each machine; None = the first that no other part names."""
    main_address: str | None = None
    """Where the processes of several machines meet: the first machine's name or address."""
    main_port: int | str = AUTO
    """TCP port of that meeting place (rendezvous)."""
    zero_stage: int | None = field(default=None, metadata={"choices": (None, 1, 2, 3)})
    """DeepSpeed ZeRO stage; None = no DeepSpeed, or what `config` says."""
    offload: bool = False
    """DeepSpeed keeps optimizer states and weights in the machine's memory."""
    config: str | None = None
    """A DeepSpeed JSON or accelerate YAML file of your own; it must agree with the recipe (DEV006)."""


@dataclass(kw_only=True)
class EvaluationConfig:
    """Held-out evaluation through the live servers, before and after training."""

    rows: int = 100
    """Held-out prompts; 0 = none."""
    samples: int = 4
    """Completions per prompt at the training temperature; a greedy pass is always made too."""


@dataclass(kw_only=True)
class AlarmsConfig:
    """What happens when a run goes on but learns nothing (codes RUN001 and up: `orchestrate rules`)."""

    action: str = choice("warn", "stop", "off")
    """For every alarm that `actions` does not name."""
    actions: dict[str, str] = field(default_factory=dict)
    """Code -> warn, stop or off, e.g. {RUN002: stop}."""
    patience_steps: int = 20
    """Steps in a row that must look the same before an alarm is raised."""
    stall_s: float = 600.0
    """Seconds in which the trainer begins nothing new (RUN004); a service may be silent for half of it (RUN005)."""


@dataclass(kw_only=True)
class SweepConfig:
    """How `-m` starts its jobs."""

    keep_going: bool = False
    """Start the jobs without errors although others have some."""
    parallel: int = 1
    """Jobs at once; a job that uses GPUs also waits until it has them to itself."""


@dataclass(kw_only=True)
class SupervisionConfig:
    """How long the orchestrator waits and how it stops things."""

    ready_timeout_s: float = 120.0
    """Seconds from a service's start until it must answer."""
    stop_grace_s: float = 3.0
    """Seconds between SIGTERM and SIGKILL, shared by all processes."""
    alarms: AlarmsConfig = field(default_factory=AlarmsConfig)
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
    ignore: dict[str, str] = field(default_factory=dict)
    """Code of a rule -> why its finding is accepted in this recipe. It is listed, and does not stop the run."""
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    data: DataConfig = field(default_factory=DataConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    launcher: LauncherConfig = field(default_factory=LauncherConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    supervision: SupervisionConfig = field(default_factory=SupervisionConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
