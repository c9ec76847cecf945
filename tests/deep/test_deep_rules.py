"""Each deep rule's page: its bad examples fire, its good ones do not, through the real children, all in one go."""

import inspect
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from orchestrator.compose import Composer
from orchestrator.deep.check import deep_check
from orchestrator.deep.rules import DEEP_RULES, DeepRule
from orchestrator.findings import Finding
from orchestrator.jobs import CheckedJob
from orchestrator.render.rules import SECTIONS
from orchestrator.rules import RULES

EXPERIMENT = "+experiment=grpo_math"
Example = tuple[DeepRule, tuple[str, ...], Mapping[str, Any]]


def examples(rule: DeepRule, section: str) -> list[Example]:
    """One a line; a line `facts: {...}` stands for what is true of the machine."""
    body = (inspect.getdoc(rule.check) or "").partition(f"## {section}\n")[2].partition("\n## ")[0]
    found: list[Example] = []
    for line in filter(None, map(str.strip, body.splitlines())):
        told = json.loads(line.removeprefix("facts: ")) if line.startswith("facts: ") else {}
        found.append((rule, () if told else tuple(shlex.split(line)), told))
    return found


BAD = [example for rule in DEEP_RULES for example in examples(rule, "Bad")]
GOOD = [example for rule in DEEP_RULES for example in examples(rule, "Good")]


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


@pytest.fixture(scope="module")
def checked(composer: Composer) -> Mapping[tuple[str, ...], CheckedJob]:
    """Every example as a job of one sweep: what they share is asked once."""
    jobs = list(dict.fromkeys(overrides for _, overrides, told in [*BAD, *GOOD] if not told))
    return dict(zip(jobs, deep_check(composer, [[EXPERIMENT, *job] for job in jobs]), strict=True))


def found_by(rule: DeepRule, findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.code == rule.code]


def ids(all_examples: Sequence[Example]) -> list[str]:
    return [f"{rule.code}-{number}" for number, (rule, *_) in enumerate(all_examples)]


@pytest.mark.parametrize(("rule", "overrides", "told"), BAD, ids=ids(BAD))
def test_bad_example_fires(
    composer: Composer,
    checked: Mapping[tuple[str, ...], CheckedJob],
    rule: DeepRule,
    overrides: tuple[str, ...],
    told: Mapping[str, Any],
) -> None:
    job = deep_check(composer, [[EXPERIMENT]], **told)[0] if told else checked[overrides]
    findings = found_by(rule, job.findings)
    assert findings, f"{rule.code} is silent about {overrides} {told}"
    assert all((finding.problem and finding.why and finding.fix) for finding in findings)


@pytest.mark.parametrize(("rule", "overrides", "told"), GOOD, ids=ids(GOOD))
def test_good_example_is_silent(
    checked: Mapping[tuple[str, ...], CheckedJob],
    rule: DeepRule,
    overrides: tuple[str, ...],
    told: Mapping[str, Any],
) -> None:
    assert found_by(rule, checked[overrides].findings) == []


def test_every_child_answered(checked: Mapping[tuple[str, ...], CheckedJob]) -> None:
    """A rule is silent, too, when nobody was asked."""
    assert [f.problem for job in checked.values() for f in job.findings if f.code == "ORD101"] == []


@pytest.mark.parametrize("rule", DEEP_RULES, ids=lambda rule: rule.code)
def test_page_has_its_sections_in_order(rule: DeepRule) -> None:
    body = inspect.getdoc(rule.check) or ""
    places = [body.find(section) for section in SECTIONS]
    assert -1 not in places
    assert places == sorted(places)
    assert examples(rule, "Bad")
    assert examples(rule, "Good")


def test_codes_and_names_are_used_once() -> None:
    every = (*RULES, *DEEP_RULES)
    assert len({rule.code for rule in every}) == len({rule.name for rule in every}) == len(every)
    assert all(int(rule.code[3:]) > 100 for rule in DEEP_RULES)
    assert all(int(rule.code[3:]) <= 100 for rule in RULES)
