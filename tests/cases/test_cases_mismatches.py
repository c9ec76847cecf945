"""Failures that people met: each is a finding that names its numbers, or points to the test that proves the rest."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from case_facts import facts_of
from neutral_settings import HERE

from orchestrator.compose import Composer
from orchestrator.findings import Finding
from orchestrator.resolve import resolve
from orchestrator.rules import Case, check

ROOT = HERE.parents[1]
BASE = (
    "data=jsonl",
    "data.path=the-rows-own-data.jsonl",
    "data.chat=false",
    "model=path",
    "model.name=Qwen/Qwen2.5-7B-Instruct",
    "generation=embedded",
    "reward=inprocess",
    "reward.functions=[{name: reward, target: 'rewards_of_the_row.py:reward'}]",
    "evaluation.rows=0",
)
"""A recipe without a finding of its own, for rows that state only what matters to them."""

Row = Mapping[str, Any]
ROWS: list[Row] = yaml.safe_load((HERE / "mismatches.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def findings_of(composer: Composer, example: Row) -> list[Finding]:
    composed = composer.compose(_last_of_each_group([*BASE, *_flat(example.get("recipe", ()))]))
    run, problems = resolve(composed.raw)
    facts = facts_of(run, example.get("facts", {}))
    return check(Case(run=run, facts=facts, problems=problems, rejected=composed.rejected))


def _flat(overrides: Iterable[Any]) -> Iterator[str]:
    """YAML repeats a list by reference only as an item of another one."""
    for override in overrides:
        yield from _flat(override) if isinstance(override, list) else (str(override),)


def _last_of_each_group(overrides: list[str]) -> list[str]:
    """Hydra takes each group once."""
    groups = {o.partition("=")[0]: o for o in overrides if "." not in o.partition("=")[0]}
    return [*groups.values(), *(o for o in overrides if "." in o.partition("=")[0])]


def examples(row: Row, role: str) -> list[Row]:
    found = row.get(role, [])
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_mismatch(composer: Composer, row: Row, record_property: Callable[[str, object], None]) -> None:
    record_property("stage", row["stage"])
    problems = [
        f"{role}: {problem}"
        for role, judge in (("row", _not_found), ("sibling", _not_found), ("control", _not_silent))
        for example in examples(row, role)
        for problem in judge(row, example, findings_of(composer, example))
    ]
    # What only a running service shows is proven elsewhere.
    if "code" not in row or "proved_by" in row:
        proofs = row["proved_by"]
        problems += ["no test proves it"] if not proofs else [f"no such test: {p}" for p in proofs if not exists(p)]
    assert not problems, "\n".join(problems)


def _not_found(row: Row, example: Row, findings: list[Finding]) -> Iterator[str]:
    """Why the failure does not count as caught."""
    wanted = example.get("severity", row["severity"])
    severities = wanted if isinstance(wanted, list) else [wanted]
    caught = [f for f in findings if f.code == row["code"] and f.severity in severities]
    if not caught:
        yield f"no {' or '.join(severities)}[{row['code']}]; found {_said(findings)}"
    text = "\n".join(f"{f.problem} {dict(f.values)} {f.why} {f.fix}" for f in caught)
    missing = [word for word in example.get("says", ()) if caught and str(word) not in text]
    if missing:
        yield f"{row['code']} does not name {missing}: {text}"
    allowed = {row["code"], *example.get("also", ())}
    others = [f for f in findings if f.severity == "error" and f.code not in allowed]
    if others:
        yield f"errors about something else: {_said(others)}"
    if never := [f for f in findings if f.code in example.get("never", ())]:
        yield f"said too: {_said(never)}"


def _not_silent(row: Row, example: Row, findings: list[Finding]) -> Iterator[str]:
    """What is said about a recipe that works."""
    if said := [f for f in findings if f.code == row["code"] and f.severity in ("error", "warning")]:
        yield f"false alarm: {_said(said)}"
    allowed = {row["code"], *example.get("also", ())}
    if errors := [f for f in findings if f.severity == "error" and f.code not in allowed]:
        yield f"errors about something else: {_said(errors)}"


def _said(findings: Iterable[Finding]) -> str:
    return "; ".join(f"{f.severity}[{f.code}] {f.problem} {dict(f.values)}" for f in findings) or "nothing"


def exists(proof: str) -> bool:
    """`path::test` or `path::test[case]`: the file defines the test, and names the case."""
    path, _, name = proof.partition("::")
    test, _, case = name.removesuffix("]").partition("[")
    if not (ROOT / path).is_file():
        return False
    nodes = list(ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))))
    defined = any(isinstance(node, ast.FunctionDef) and node.name == test for node in nodes)
    named = not case or any(isinstance(node, ast.Constant) and node.value == case for node in nodes)
    return defined and named


def test_the_base_has_no_finding_of_its_own(composer: Composer) -> None:
    severe = [f for f in findings_of(composer, {}) if f.severity in ("error", "warning") and f.code != "ORD003"]
    assert not severe, _said(severe)


def test_a_proof_is_looked_up() -> None:
    here = Path(__file__).relative_to(ROOT)
    assert exists(f"{here}::test_mismatch")
    assert not exists(f"{here}::test_that_is_not_there")
    assert not exists("tests/nowhere.py::test_mismatch")
