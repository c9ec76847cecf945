"""The trainer as one Python process."""

from launchers.context import Context, gpus, module_argv, threads
from orchestrator.addresses import host_of, is_loopback
from orchestrator.kinds import generation_kind
from orchestrator.schema import RunConfig
from orchestrator.steps import Step


def step(run: RunConfig, context: Context, *, after: tuple[str, ...], resume_from: str | None = None) -> Step:
    """`resume_from` is a checkpoint folder, or None for a fresh start."""
    resume = ("--resume-from", resume_from) if resume_from else ()
    return Step(
        name="trainer",
        argv=(
            *module_argv(context.interpreter, "orchestrator.training.main"),
            "--config",
            str(context.paths.config),
            *resume,
        ),
        # rollout_func is experimental in TRL 1.16, and what this project is built on: the warning tells a user nothing.
        env={"TRL_EXPERIMENTAL_SILENCE": "1"}
        | threads(context.num_cpus)
        | gpus(context, "trainer")
        | _meeting_place(run)
        | dict(run.launcher.env)
        | dict(run.trainer.env),
        after=after,
    )


def _meeting_place(run: RunConfig) -> dict[str, str]:
    """Where vLLM's code in the trainer has the server join its NCCL group.

    vLLM would name the address of the way out to the internet, which may be none, or one that others can reach.
    """
    generation = run.generation
    over_nccl = generation_kind(generation).server and generation.weight_sync.backend == "nccl"
    return {"VLLM_HOST_IP": "127.0.0.1"} if over_nccl and is_loopback(host_of(generation.url)) else {}
