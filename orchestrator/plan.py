"""A recipe -> a Plan: pure, frozen data. Nothing is started and nothing is written here."""

from launchers import counts, embedded, python, reward, vllm
from launchers.context import Context
from orchestrator.schema import RunConfig
from orchestrator.steps import Plan, Step


def make_plan(run: RunConfig, context: Context, *, resume_from: str | None = None) -> Plan:
    """Services that the run starts itself, then the trainer, which waits for them, then the comparison of counts."""
    services = tuple(_services(run, context))
    trainer = python.step(run, context, after=tuple(step.name for step in services), resume_from=resume_from)
    verdict = counts.step(run, context, after=(trainer.name,))
    return Plan(name=run.name, steps=(*services, trainer, verdict), stop_grace_s=run.supervision.stop_grace_s)


def _services(run: RunConfig, context: Context) -> list[Step]:
    steps = []
    if run.reward.kind == "local":
        steps.append(reward.step(run, context))
    if run.generation.kind == "embedded":
        steps.append(embedded.step(run, context))
    elif run.generation.kind == "vllm":
        steps.append(vllm.step(run, context))
    return steps
