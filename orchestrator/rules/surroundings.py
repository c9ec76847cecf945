"""CFG: the environment of the processes, and settings that nothing in this recipe reads."""

from collections.abc import Callable, Iterator

from orchestrator.findings import Finding
from orchestrator.kinds import generation_kind
from orchestrator.rules.case import Case
from orchestrator.schema import RunConfig

MOST_VARIABLES = 1000


LONGEST_VARIABLE = 128 * 1024
"""Linux's MAX_ARG_STRLEN: a longer string cannot be handed to a program."""


LARGEST_ENVIRONMENT = 1024 * 1024
"""Half of what Linux leaves for arguments and environment with the usual stack limit."""


def environment_too_large(case: Case) -> Iterator[Finding]:
    """The environment that every process of the run inherits is one that can be handed on.

    ## What it checks
    Number of variables (a warning above 1000), the longest (an error above 128 KiB, Linux's limit for one string) and
    their sum (a warning above 1 MiB).
    ## Why it matters
    Workers fail to start with "Argument list too long", or a scheduler refuses the job's description.
    ## Bad
        facts: {"environment_size": {"variables": 3000, "total_bytes": 40000, "longest_name": "A", "longest_bytes": 9}}
        facts: {"environment_size": {"variables": 9, "total_bytes": 1, "longest_name": "A", "longest_bytes": 139999}}
    ## Good
        facts: {"environment_size": {"variables": 60, "total_bytes": 9000, "longest_name": "A", "longest_bytes": 900}}
    """
    size = case.facts.environment_size
    if size is None:
        return
    values = {
        "variables": size.variables,
        "bytes": size.total_bytes,
        f"longest ({size.longest_name})": size.longest_bytes,
    }
    fatal = size.longest_bytes > LONGEST_VARIABLE
    if fatal or size.variables > MOST_VARIABLES or size.total_bytes > LARGEST_ENVIRONMENT:
        yield Finding(
            severity="error" if fatal else "warning",
            values=values,
            problem=f"the environment has {size.variables} variables of {size.total_bytes} bytes; the longest is "
            f"{size.longest_name} with {size.longest_bytes}",
            why="Each process of the run inherits it; Linux refuses to start one with too much of it.",
            fix='start with what is needed: env -i PATH="$PATH" HOME="$HOME" orchestrate ..., or unset '
            + size.longest_name,
        )


def _may_be_vllm(run: RunConfig) -> bool:
    """What somebody else runs may be vLLM: the handshake compares its sizes."""
    return generation_kind(run.generation).vllm or run.generation.kind == "external"


UNREAD: tuple[tuple[str, Callable[[RunConfig], bool], str], ...] = (
    ("launcher.zero_stage", lambda run: run.launcher.kind in ("deepspeed", "accelerate"), "launcher=deepspeed"),
    ("launcher.offload", lambda run: run.launcher.kind in ("deepspeed", "accelerate"), "launcher=deepspeed"),
    ("launcher.config", lambda run: run.launcher.kind in ("deepspeed", "accelerate"), "launcher=accelerate"),
    ("generation.tensor_parallel_size", _may_be_vllm, "generation=vllm"),
    ("generation.data_parallel_size", _may_be_vllm, "generation=vllm"),
    ("generation.python", lambda run: generation_kind(run.generation).started, "generation=vllm"),
    ("generation.cpu", lambda run: generation_kind(run.generation).vllm, "generation=vllm_cpu"),
    ("generation.num_machines", lambda run: generation_kind(run.generation).server, "generation=vllm"),
    ("trainer.lora.lora_alpha", lambda run: run.trainer.lora.r is not None, "trainer.lora.r=16"),
    ("trainer.lora.target_modules", lambda run: run.trainer.lora.r is not None, "trainer.lora.r=16"),
    ("trainer.lora.lora_dropout", lambda run: run.trainer.lora.r is not None, "trainer.lora.r=16"),
    ("trainer.lora.modules_to_save", lambda run: run.trainer.lora.r is not None, "trainer.lora.r=16"),
    ("trainer.lora.bias", lambda run: run.trainer.lora.r is not None, "trainer.lora.r=16"),
    ("trainer.lora.use_rslora", lambda run: run.trainer.lora.r is not None, "trainer.lora.r=16"),
    ("trainer.lora.use_dora", lambda run: run.trainer.lora.r is not None, "trainer.lora.r=16"),
)
"""Setting -> for which recipes something reads it, and the choice that makes it so."""


def setting_without_reader(case: Case) -> Iterator[Finding]:
    """Settings of one kind of part are not left beside another kind.

    ## What it checks
    ZeRO settings and a launcher's file with other launchers, parallel sizes without vLLM, adapter settings without a
    rank: values other than the default that nothing would read.
    ## Why it matters
    The run would go on without them, and look as if it had them.
    ## Bad
        launcher.zero_stage=3
        generation.tensor_parallel_size=2
        trainer.lora.lora_alpha=32
        generation=external generation.url=http://127.0.0.1:8000 launcher.zero_stage=3
    ## Good
        launcher=deepspeed launcher.zero_stage=3
        generation=vllm generation.tensor_parallel_size=2
    """
    plain = RunConfig()
    for path, is_read, choice in UNREAD:
        part, *names = path.split(".")
        value, default = getattr(case.run, part), getattr(plain, part)
        for name in names:
            value, default = getattr(value, name), getattr(default, name)
        if value != default and not is_read(case.run):
            kind = f"{part}.kind"
            yield Finding(
                values={path: value, kind: getattr(getattr(case.run, part), "kind", None)},
                problem=f"{path} = {value}, and nothing reads it in this recipe",
                why="The run would go on without it.",
                fix=f"choose {choice}, or remove {path}",
            )


MANAGED_VARIABLES = {
    "CUDA_VISIBLE_DEVICES": "launcher.gpus, generation.gpus",
    "WORLD_SIZE": "launcher.num_processes and num_machines",
    "RANK": "the launcher",
    "LOCAL_RANK": "the launcher",
    "MASTER_ADDR": "launcher.main_address",
    "MASTER_PORT": "launcher.main_port",
}
"""Environment variable -> what decides it."""


def managed_variable(case: Case) -> Iterator[Finding]:
    """Environment variables of the recipe leave alone what its settings decide.

    ## What it checks
    CUDA_VISIBLE_DEVICES, WORLD_SIZE, RANK, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in any `env`.
    ## Why it matters
    The ledgers count GPUs, processes and ports from the settings; a variable would move a part without them.
    ## Bad
        +generation.env.CUDA_VISIBLE_DEVICES=1
        +trainer.env.MASTER_PORT=29501
    ## Good
        +generation.env.NCCL_DEBUG=INFO
    """
    run = case.run
    envs = {"reward": run.reward.env, "generation": run.generation.env, "trainer": run.trainer.env}
    for part, env in (envs | {"launcher": run.launcher.env}).items():
        for name in sorted(env.keys() & MANAGED_VARIABLES.keys()):
            yield Finding(
                values={f"{part}.env.{name}": env[name]},
                problem=f"{part}.env.{name} = {env[name]} is decided by {MANAGED_VARIABLES[name]}",
                why="The rules count from the settings, and the process would follow the variable.",
                fix=f"remove {part}.env.{name}, and use {MANAGED_VARIABLES[name]}",
            )
