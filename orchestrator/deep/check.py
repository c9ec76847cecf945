"""Offline rules, children, deep rules: the jobs of `check --deep`."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.compose import Composer
from orchestrator.deep.answers import Answers, CountedPrompts
from orchestrator.deep.asking import DEADLINE_S, learn
from orchestrator.deep.case import DeepCase
from orchestrator.deep.rules import deep_findings
from orchestrator.facts import ModelFacts, prompt_tokens
from orchestrator.findings import marked
from orchestrator.jobs import CheckedJob, checked_jobs
from orchestrator.redact import without_secrets


def deep_check(
    composer: Composer, jobs: Sequence[Sequence[str]], *, online: bool = False, deadline_s: float = DEADLINE_S
) -> list[CheckedJob]:
    """The jobs with the findings of the offline and of the deep rules. Raises RecipeError.

    The offline rules run twice: first for what need not be asked, then with the prompts counted.
    """
    first = checked_jobs(composer, jobs, online=online)
    answers = [_remembered(job, learned) for job, learned in zip(first, learn(first, deadline_s), strict=True)]
    counted = checked_jobs(composer, jobs, online=online)
    return [_with_deep(job, learned) for job, learned in zip(counted, answers, strict=True)]


def _with_deep(job: CheckedJob, answers: Answers) -> CheckedJob:
    case = DeepCase(run=job.run, facts=job.facts, offline=tuple(job.findings), answers=answers)
    found = [without_secrets(marked(finding, job.run.ignore)) for finding in deep_findings(case)]
    return replace(job, findings=[*job.findings, *found])


def _remembered(job: CheckedJob, answers: Answers) -> Answers:
    """Puts the lengths where the rules about them, and every later check of these rows, look."""
    model, data, counted = job.facts.models.get(job.run.model.name), job.facts.data, answers.prompts
    if not isinstance(counted, CountedPrompts) or not isinstance(model, ModelFacts) or isinstance(data, str):
        return answers
    try:
        if counted.train:
            prompt_tokens.write(job.run, data, model, counted.train)
    except OSError as error:
        return replace(answers, not_kept=str(error))
    return answers
