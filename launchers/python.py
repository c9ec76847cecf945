"""The trainer as one Python process."""

from launchers.context import Context, module_argv, threads
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
        | dict(run.launcher.env)
        | dict(run.trainer.env),
        after=after,
    )
