"""Each rule's page: its sections, its bad examples that fire, its good ones that do not."""

import inspect
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.compose import Composer
from orchestrator.data import DataFacts
from orchestrator.facts import Facts, Gpu, ModelFacts, gather
from orchestrator.facts.types import EnvironmentSize
from orchestrator.fields.source import FieldFact
from orchestrator.findings import Finding
from orchestrator.render.rules import SECTIONS
from orchestrator.resolve import resolve
from orchestrator.rules import RULES, Case, Rule, check
from orchestrator.rules.config import RENAMED

EXPERIMENT = "+experiment=grpo_math"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def case_of(composer: Composer, overrides: list[str], told: dict[str, Any]) -> Case:
    composed = composer.compose([EXPERIMENT, *overrides])
    run, problems = resolve(composed.raw)
    return Case(run=run, facts=_with(gather(run), told), problems=problems, rejected=composed.rejected)


def _with(facts: Facts, told: dict[str, Any]) -> Facts:
    """Facts of this machine, with what an example says is true instead."""
    changed: dict[str, Any] = {name: FACTS.get(name, lambda v: v)(value) for name, value in told.items()}
    if "model" in told:
        known = ModelFacts(path="m", vocab_size=128, max_positions=128, num_tokens=108, has_chat_template=True)
        replaced = replace(known, **{k: tuple(v) if isinstance(v, list) else v for k, v in told["model"].items()})
        changed["models"] = dict.fromkeys(facts.models, replaced)
        del changed["model"]
    if "data" in told:
        assert isinstance(facts.data, DataFacts)
        changed["data"] = replace(facts.data, **told["data"])
    return replace(facts, **changed)


FACTS: dict[str, Callable[[Any], Any]] = {
    "busy_ports": lambda ports: {int(port): owner for port, owner in ports.items()},
    "prompt_tokens": lambda counts: {int(length): rows for length, rows in counts.items()},
    "generation_fields": lambda fields: {n: FieldFact(annotation=a, default="") for n, a in fields.items()},
    "listening": frozenset,
    "programs": frozenset,
    "gpus": lambda gpus: tuple(Gpu(**({"memory_gib": 80} | gpu)) for gpu in gpus),
    "environment_size": lambda size: EnvironmentSize(**size),
}
"""How a fact's JSON becomes what the rules see, where the two differ."""


def examples(rule: Rule, section: str) -> list[tuple[list[str], dict[str, Any]]]:
    """(overrides, facts) of each example: one a line; a `facts:` line belongs to the line before it, if any."""
    body = inspect.getdoc(rule.check) or ""
    lines = [
        line.strip() for line in body.partition(f"## {section}\n")[2].partition("\n## ")[0].splitlines() if line.strip()
    ]
    found: list[tuple[list[str], dict[str, Any]]] = []
    for line in lines:
        if line.startswith("facts: "):
            overrides = found.pop()[0] if found else []
            found.append((overrides, json.loads(line.removeprefix("facts: "))))
        else:
            found.append((shlex.split(line), {}))
    return found


ALL_BAD = [
    pytest.param(rule, *ex, id=f"{rule.code}-{i}") for rule in RULES for i, ex in enumerate(examples(rule, "Bad"))
]
ALL_GOOD = [
    pytest.param(rule, *ex, id=f"{rule.code}-{i}") for rule in RULES for i, ex in enumerate(examples(rule, "Good"))
]


def found_by(rule: Rule, case: Case) -> list[Finding]:
    return [finding for finding in check(case) if finding.code == rule.code]


@pytest.mark.parametrize(("rule", "overrides", "told"), ALL_BAD)
def test_bad_example_fires(composer: Composer, rule: Rule, overrides: list[str], told: dict[str, Any]) -> None:
    findings = found_by(rule, case_of(composer, overrides, told))
    assert findings, f"{rule.code} is silent about {overrides} {told}"
    for finding in findings:
        assert all((finding.problem, finding.why, finding.fix))


@pytest.mark.parametrize(("rule", "overrides", "told"), ALL_GOOD)
def test_good_example_is_silent(composer: Composer, rule: Rule, overrides: list[str], told: dict[str, Any]) -> None:
    assert found_by(rule, case_of(composer, overrides, told)) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_page_has_its_sections_in_order(rule: Rule) -> None:
    body = inspect.getdoc(rule.check) or ""
    places = [body.find(section) for section in SECTIONS]
    assert -1 not in places
    assert places == sorted(places)
    assert examples(rule, "Bad")
    assert examples(rule, "Good")


@pytest.mark.parametrize("target", sorted(set(RENAMED.values())))
def test_a_new_name_is_a_setting(composer: Composer, target: str) -> None:
    findings = check(case_of(composer, [f"{target}=1"], {}))
    assert not [finding for finding in findings if finding.code == "CFG001"]


def test_codes_and_names_are_used_once() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.usefixtures("fetched_models")
def test_every_shipped_experiment_has_no_finding(composer: Composer) -> None:
    for path in (ROOT / "conf" / "experiment").glob("*.yaml"):
        composed = composer.compose([f"+experiment={path.stem}"])
        run, problems = resolve(composed.raw)
        assert check(Case(run=run, facts=gather(run), problems=problems)) == [], path.name


BROKEN = {
    "generation.model=/models/other": ("MOD001", "/models/other"),
    "generation.url=http://127.0.0.1:9000": ("NET001", "9000"),
    "trainer.args.max_completion_length=64": ("LEN001", "64", "8"),
    "trainer.args.num_generations=7": ("NUM001", "7", "128"),
    "generaton.port=1": ("CFG001", "generation.port"),
    "trainer.args.learning_rate=abc": ("CFG002", "abc", "float"),
    "reward.functions.0.target=tests/rules/wants_solution.py:score": ("RWD004", "solution", "answer"),
}
"""One side broken -> the code, and the values that the finding must name."""


@pytest.mark.parametrize("override", BROKEN)
def test_one_broken_side_is_one_finding_with_both_values(composer: Composer, override: str) -> None:
    (finding,) = check(case_of(composer, [override], {}))
    code, *values = BROKEN[override]
    shown = f"{finding.problem} {dict(finding.values)} {finding.fix}"
    assert finding.code == code
    assert all(value in shown for value in values)


def test_all_seven_at_once_are_seven_findings(composer: Composer) -> None:
    findings = check(case_of(composer, list(BROKEN), {}))
    assert sorted(f.code for f in findings) == sorted(code for code, *_ in BROKEN.values())
