"""Recipes that people run: no false alarm about those that work, and the error in those that do not."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from case_facts import of_recipe
from neutral import UnknownKeyError, overrides
from neutral_settings import Recipe, parse, recipes

from orchestrator.compose import Composer
from orchestrator.findings import NOT_STARTABLE, Finding
from orchestrator.resolve import resolve
from orchestrator.rules import Case, check

FAMILIES = {
    "LEN": ("LEN",),
    "BATCH": ("NUM",),
    "GPU": ("DEV",),
    "PORT": ("NET",),
    "ORDER": ("ORD",),
    "MODEL": ("MOD",),
    "NUM": ("NUM", "MOD"),
    "CFG": ("CFG", "SYN"),
    "RSV": ("RWD", "LEN"),
    "EVAL": ("NUM005",),
}
"""Kind of failure that a row names -> our codes."""


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def findings_of(composer: Composer, recipe: Recipe) -> list[Finding]:
    composed = composer.compose(overrides(recipe))
    run, problems = resolve(composed.raw)
    return check(Case(run=run, facts=of_recipe(recipe, run), problems=problems, rejected=composed.rejected))


def of_kinds(findings: Iterable[Finding], kinds: Iterable[str]) -> list[Finding]:
    prefixes = tuple(prefix for kind in kinds for prefix in FAMILIES[kind])
    return [finding for finding in findings if finding.code.startswith(prefixes)]


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.id)
def test_recipe(composer: Composer, recipe: Recipe, record_property: Callable[[str, object], None]) -> None:
    record_property("stage", recipe.expected if not recipe.kinds else f"{recipe.expected} {'/'.join(recipe.kinds)}")
    findings = findings_of(composer, recipe)
    errors = [f for f in findings if f.severity == "error"]
    warnings = [f for f in findings if f.severity == "warning" and f.code != NOT_STARTABLE]
    named = of_kinds(errors if recipe.expected == "error" else warnings, recipe.kinds)
    if recipe.expected == "error":
        assert named, f"no error of {recipe.kinds}; {_said(findings)}"
        return
    assert not errors, _said(errors)
    assert all(warning in named for warning in warnings), _said(warnings)
    if recipe.kinds:
        assert named, f"no warning of {recipe.kinds}"


BROKEN = {
    "R13": ("g.port=8001", "NET001"),
    "R21": ("g.gpus=[1,2]", "DEV001"),
    "R37": ("t.np=8", "NUM001"),
    "R65": ("g.mml=8191", "LEN003"),
    "R79": ("t.kind=grpo", "NUM003"),
    "R87": ("t.per_device_eval_batch_size=3", "NUM005"),
    "R89": ("t.ng=5", "NUM001"),
    "R97": ("h.gpus=7", "DEV002"),
    "R107": ("t.max_total=2049", "LEN012"),
    "R115": ("g.max_num_batched_tokens=3071", "LEN007"),
    "R123": ("t.mcl=3073", "LEN004"),
    "R147": ("g.engines=5", "DEV003"),
    "R153": ("g.engines=13", "DEV002"),
    "R155": ("t.max_prompt=2049", "LEN004"),
}
"""A recipe that works -> one number of it that breaks it, and the error: no number is lost on the way to the rules."""


@pytest.mark.parametrize("id_", BROKEN)
def test_one_number_breaks_a_recipe(composer: Composer, id_: str) -> None:
    settings, code = BROKEN[id_]
    recipe = next(recipe for recipe in recipes() if recipe.id == id_)
    changed = replace(recipe, settings={**recipe.settings, **parse(settings)})
    before, after = findings_of(composer, recipe), findings_of(composer, changed)
    assert code not in {f.code for f in before if f.severity == "error"}
    assert code in {f.code for f in after if f.severity == "error"}, _said(after)


def test_an_unknown_word_is_an_error() -> None:
    recipe = recipes()[0]
    with pytest.raises(UnknownKeyError, match=r"R01: t\.pbd"):
        overrides(replace(recipe, settings={**recipe.settings, **parse("t.pbd=8")}))


def _said(findings: Iterable[Finding]) -> str:
    return "\n".join(f"{f.severity}[{f.code}] {f.problem} {dict(f.values)}" for f in findings)
