"""The last task: what the servers counted against what the steps imply."""

from launchers.context import Context, module_argv
from orchestrator.schema import RunConfig
from orchestrator.steps import Step


def step(run: RunConfig, context: Context, *, after: tuple[str, ...]) -> Step:
    return Step(
        name="counts",
        argv=(*module_argv(context.interpreter, "orchestrator.supervise.counts"), "--run-dir", str(context.run_dir)),
        after=after,
    )
