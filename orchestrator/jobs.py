"""One combination of overrides -> a checked job, and how it ended. Every verb checks through here: none checks less."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.compose import Composed, Composer, RecipeError
from orchestrator.facts import Facts, FactsCache, gather
from orchestrator.findings import Finding, marked, stops_a_run
from orchestrator.redact import shown_override, without_secrets
from orchestrator.resolve import resolve
from orchestrator.rules import Case, check
from orchestrator.schema import RunConfig


@dataclass(frozen=True, kw_only=True)
class CheckedJob:
    """A recipe, the facts it was checked against, and what was found."""

    overrides: tuple[str, ...]
    run: RunConfig
    facts: Facts
    findings: list[Finding]

    @property
    def starts(self) -> bool:
        return not stops_a_run(self.findings)


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """How one job ended. `result` is result.json's content; of a job that failed, what there is."""

    code: int
    run_dir: Path | None
    result: dict[str, Any]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Share:
    """What of the machine a job may use."""

    num_jobs: int = 1
    """Jobs at once, which share the cores."""
    gpus: str | None = None
    """CUDA_VISIBLE_DEVICES of everything that the job starts; None = as inherited."""


WHOLE = Share()


def check_job(
    composer: Composer, overrides: Sequence[str], cache: FactsCache | None = None, *, online: bool = False
) -> CheckedJob:
    """`online` lets the facts ask the hub. Raises CommandLineError and RecipeError; everything else is a finding."""
    with composer.lent(overrides) as composed:
        return check_composed(composed, cache, online=online)


def checked_jobs(composer: Composer, jobs: Sequence[Sequence[str]], *, online: bool = False) -> list[CheckedJob]:
    """Every job of a request. Raises RecipeError, which names the jobs, when any of them does not compose."""
    if len(jobs) == 1:
        return [check_job(composer, jobs[0], online=online)]
    cache = FactsCache()  # facts of one moment: what two jobs ask for alike is looked up once
    checked: list[CheckedJob] = []
    broken: dict[str, list[str]] = {}
    for number, overrides in enumerate(jobs):
        try:
            checked.append(check_job(composer, overrides, cache, online=online))
        except RecipeError as error:
            broken.setdefault(str(error), []).append(f"job {number} ({' '.join(map(shown_override, overrides))})")
    if broken:
        raise RecipeError("\n".join(f"{', '.join(which)}: {reason}" for reason, which in broken.items()))
    return checked


def check_composed(composed: Composed, cache: FactsCache | None = None, *, online: bool = False) -> CheckedJob:
    """What the recipe accepts (`ignore`) and what nobody may read (secrets) is settled here, once, for every reader."""
    run, problems = resolve(composed.raw)
    facts = gather(run, cache, online=online)
    case = Case(run=run, facts=facts, problems=problems, rejected=tuple(map(shown_override, composed.rejected)))
    findings = [without_secrets(marked(finding, run.ignore)) for finding in check(case)]
    return CheckedJob(overrides=composed.overrides, run=run, facts=facts, findings=findings)
