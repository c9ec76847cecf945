"""One combination of overrides -> a checked job, and how it ended. Every verb checks through here: none checks less."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from orchestrator.compose import Composed, Composer
from orchestrator.facts import Facts, gather
from orchestrator.findings import Finding
from orchestrator.resolve import resolve
from orchestrator.rules import Case, check
from orchestrator.schema import RunConfig


@dataclass(frozen=True, kw_only=True)
class CheckedJob:
    """A recipe, the facts it was checked against, and what was found."""

    overrides: tuple[str, ...]
    raw: DictConfig
    run: RunConfig
    facts: Facts
    findings: list[Finding]


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """How one job ended. `result` is result.json's content; of a job that failed, what there is."""

    code: int
    run_dir: Path | None
    result: dict[str, Any]
    reason: str = ""


def check_job(composer: Composer, overrides: Sequence[str]) -> CheckedJob:
    """Raises CommandLineError and RecipeError; everything else is a finding."""
    return check_composed(composer.compose(overrides))


def checked_jobs(composer: Composer, overrides: Sequence[str], *, multirun: bool) -> list[CheckedJob]:
    """One job, or one per combination of Hydra's own sweeper (grid, list, range)."""
    combinations = composer.combinations(overrides) if multirun else [tuple(overrides)]
    return [check_job(composer, combination) for combination in combinations]


def check_composed(composed: Composed) -> CheckedJob:
    run, problems = resolve(composed.raw)
    facts = gather(run)
    case = Case(run=run, facts=facts, problems=problems, rejected=composed.rejected)
    return CheckedJob(overrides=composed.overrides, raw=composed.raw, run=run, facts=facts, findings=check(case))
