"""Shared values, changed on one side only and on both: the pairs come from the recipes' own interpolations and from the
tables of fields, so that a new interpolation or a new field is tested without a line here."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from orchestrator.compose import Composer
from orchestrator.facts import gather
from orchestrator.fields.trainer import TRAINER_KINDS
from orchestrator.findings import Finding
from orchestrator.resolve import resolve
from orchestrator.rules import Case, check
from orchestrator.rules.modes import ENGINE_FIELDS
from orchestrator.schema import RunConfig

pytestmark = pytest.mark.usefixtures("fetched_models")

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))
COMPOSER = Composer()
REFERENCE = re.compile(r"\$\{([a-z_][\w.]*)\}")
SHOWN = ("error", "warning", "note")


@dataclass(frozen=True)
class Shared:
    """A setting that takes its value from others."""

    experiment: str
    path: str
    text: str

    @property
    def sources(self) -> list[str]:
        return REFERENCE.findall(self.text)

    @property
    def is_copy(self) -> bool:
        """The very value of one other setting; otherwise it is computed from several."""
        return REFERENCE.fullmatch(self.text) is not None


def interpolations(node: DictConfig, path: str = "") -> Iterator[tuple[str, str]]:
    for key in node:
        where = f"{path}.{key}" if path else str(key)
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none():
            yield from interpolations(child, where)
        elif OmegaConf.is_interpolation(node, key):
            yield where, str(child._value())


SHARED = [
    Shared(name, path, text)
    for name in EXPERIMENTS
    for path, text in interpolations(COMPOSER.compose([f"+experiment={name}"]).raw)
    if REFERENCE.search(text)
]


def findings(*overrides: str) -> list[Finding]:
    composed = COMPOSER.compose(overrides)
    run, problems = resolve(composed.raw)
    case = Case(run=run, facts=gather(run), problems=problems, rejected=composed.rejected)
    return [finding for finding in check(case) if finding.severity in SHOWN]


def value_of(experiment: str, path: str) -> Any:
    run, _ = resolve(COMPOSER.compose([f"+experiment={experiment}"]).raw)
    return follow(run, path)


def follow(node: Any, path: str) -> Any:
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else getattr(node, key)
    return node


def choices_of(path: str) -> tuple[Any, ...]:
    *parents, name = path.split(".")
    owner = follow(RunConfig(), ".".join(parents)) if parents else RunConfig()
    fields = getattr(type(owner), "__dataclass_fields__", {})
    return tuple(fields[name].metadata.get("choices", ())) if name in fields else ()


def another(path: str, value: Any, folder: Path) -> Any:
    """A legal value of the same kind, and not the same."""
    if others := [choice for choice in choices_of(path) if choice != value]:
        return others[0]
    if path.endswith(".port"):
        return 28123
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return 2 * value or 1
    if isinstance(value, str) and value.startswith("http://"):
        return "http://127.0.0.1:28123"
    if isinstance(value, str) and Path(value).is_dir():
        return shutil.copytree(value, folder / "another_model")
    if path.endswith(".host"):
        return "localhost"
    return "another"


def halved(value: Any) -> Any:
    return value // 2 if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.mark.parametrize("shared", SHARED, ids=lambda s: f"{s.experiment}-{s.path}")
def test_changed_on_one_side_is_caught(shared: Shared, tmp_path: Path) -> None:
    value = value_of(shared.experiment, shared.path)
    # A copy must be equal; of what is computed (a sum that is an upper bound), less is what breaks it.
    changed = another(shared.path, value, tmp_path) if shared.is_copy or isinstance(value, str) else halved(value)
    found = findings(f"+experiment={shared.experiment}", f"{shared.path}={changed}")
    named = [finding for finding in found if shared.path in finding.values]
    assert named, f"{shared.path}={changed} against {shared.text} is not caught"
    assert any(set(finding.values) & {*shared.sources, *neighbours(shared)} for finding in named), "the other side"


def neighbours(shared: Shared) -> set[str]:
    """What a source itself is computed from or shared with: either may be the other side that a finding names."""
    return {s.path for s in SHARED if set(s.sources) & set(shared.sources)} - {shared.path}


COMPUTED = {(s.experiment, s.path) for s in SHARED}
SOURCES = sorted({(s.experiment, source) for s in SHARED for source in s.sources} - COMPUTED)
"""What is written once. A source that is computed itself is changed where its own sources are."""


@pytest.mark.parametrize(("experiment", "source"), SOURCES)
def test_changed_on_both_sides_is_silent(experiment: str, source: str, tmp_path: Path) -> None:
    changed = another(source, value_of(experiment, source), tmp_path)
    assert findings(f"+experiment={experiment}", f"{source}={changed}") == []


LIMITS = [
    (kind, field, limit)
    for kind, known in TRAINER_KINDS.items()
    for field, limit in ((known.completion_length, "completion_length"), (known.generations, "generations"))
    if field and known.config
]


@pytest.mark.parametrize(("kind", "field", "limit"), LIMITS)
def test_each_trainers_own_name_of_a_limit(kind: str, field: str, limit: str) -> None:
    """The field table: what `limits` states, under the name that the trainer kind has for it."""
    argv = "[python3, train.py]" if kind == "command" else "[]"
    base = ["+experiment=grpo_math", f"trainer.kind={kind}", f"trainer.argv={argv}"]
    alike = findings(*base, f"+trainer.args.{field}=${{limits.{limit}}}")
    one = findings(*base, f"+trainer.args.{field}={2 * value_of('grpo_math', f'limits.{limit}')}")
    assert not [f for f in alike if f"limits.{limit}" in f.values and f"trainer.args.{field}" in f.values]
    assert [f for f in one if f"limits.{limit}" in f.values and f"trainer.args.{field}" in f.values]


@pytest.mark.parametrize("field", ENGINE_FIELDS)
def test_engine_settings_of_trl_and_of_the_recipe(field: str) -> None:
    name = f"generation.{ENGINE_FIELDS[field]}"
    base = ["+experiment=grpo_math", "generation=colocate", "generation.args.gpu_memory_utilization=0.5"]
    base += ["generation.args.enable_sleep_mode=true"]
    meant = {"tensor_parallel_size": 1, "max_model_len": 24}.get(name.split(".")[-1])
    meant = meant or (0.5 if "utilization" in name else "true")
    other = "false" if meant == "true" else float(meant) / 2 if isinstance(meant, float) else int(meant) + 1
    assert not [f for f in findings(*base, f"trainer.args.{field}={meant}") if f.code == "SYN008"]
    caught = [f for f in findings(*base, f"trainer.args.{field}={other}") if f.code == "SYN008"]
    assert [set(f.values) for f in caught] == [{f"trainer.args.{field}", name}]
