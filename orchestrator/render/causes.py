"""Findings of many jobs, grouped by cause; and how jobs are named: by number and by what differs in their overrides."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.findings import Finding
from orchestrator.jobs import CheckedJob
from orchestrator.redact import shown_override

MOST_NAMED = 8
"""Jobs whose overrides are printed one by one; JSON has all of them."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """One finding, word for word, and the numbers of the jobs that have it."""

    finding: Finding
    jobs: list[int]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What one rule says of the same settings in the same sentence, values aside: one mistake, in one job or many."""

    said: list[Said]

    @property
    def first(self) -> Finding:
        return self.said[0].finding

    @property
    def jobs(self) -> list[int]:
        return sorted({number for one in self.said for number in one.jobs})


def causes(jobs: Sequence[CheckedJob]) -> list[Cause]:
    """In the order in which the jobs meet them."""
    grouped: dict[object, dict[str, Said]] = {}
    for number, job in enumerate(jobs):
        for finding in job.findings:
            same = grouped.setdefault(_cause(finding), {})
            same.setdefault(repr(finding), Said(finding=finding, jobs=[])).jobs.append(number)
    return [Cause(said=list(same.values())) for same in grouped.values()]


def _cause(finding: Finding) -> object:
    """What two findings share that differ in values alone."""
    sentence = finding.problem
    for path, value in sorted(finding.values.items(), key=lambda item: -len(str(item[1]))):
        if str(value):
            sentence = re.sub(rf"(?<![\w.]){re.escape(str(value))}(?!\w)", f"{{{path}}}", sentence)
    return finding.code, finding.severity, finding.ignored, tuple(finding.values), sentence


class Names:
    """How the jobs of a sweep are named."""

    def __init__(self, jobs: Sequence[CheckedJob]) -> None:
        self._overrides = [tuple(map(shown_override, job.overrides)) for job in jobs]
        self._common = set[str]().union(*self._overrides[:1]).intersection(*self._overrides)

    def all(self, number: int) -> list[str]:
        return list(self._overrides[number])

    def differs(self, number: int) -> list[str]:
        """The overrides of a job that not every job has."""
        return [override for override in self._overrides[number] if override not in self._common]

    def where(self, numbers: Sequence[int]) -> str:
        if len(numbers) == len(self._overrides):
            return "every job"
        if len(numbers) == 1:
            return f"job {numbers[0]} ({' '.join(self.differs(numbers[0]))})"
        shared = set(self.differs(numbers[0])).intersection(*(self.differs(number) for number in numbers))
        alike = [n for n, overrides in enumerate(self._overrides) if shared <= set(overrides)]
        if shared and alike == list(numbers):
            return f"the {len(numbers)} jobs with {' '.join(sorted(shared))}: {spans(numbers)}"
        named = [f"{number} ({' '.join(self.differs(number))})" for number in numbers[:MOST_NAMED]]
        rest = numbers[MOST_NAMED:]
        return f"jobs {', '.join(named)}" + (f" and {len(rest)} more: {spans(rest)}" if rest else "")


def spans(numbers: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> 0-2, 5; many of them end in dots."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    named = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:MOST_NAMED]]
    return ", ".join([*named, *(["..."] if len(runs) > MOST_NAMED else [])])
