"""`orchestrate schema`: what ships is valid, and what the checks refuse within one file is not."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from omegaconf import OmegaConf

from orchestrator import schema
from orchestrator.cli import main
from orchestrator.compose import CONF_DIR
from orchestrator.fields.docs import schema_docs
from orchestrator.fields.json_schema import group_schema, recipe_schema
from orchestrator.fields.json_types import type_of
from orchestrator.fields.trainer import trainer_fields
from orchestrator.fields.types import accepts

FILES = sorted(CONF_DIR.rglob("*.yaml"))
GROUPS = sorted({path.parent.name for path in FILES} - {"conf", "experiment"})


def problems(document: Any, group: str = "") -> list[str]:
    made = group_schema(group) if group else recipe_schema([CONF_DIR])
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(made).iter_errors(document)]


@pytest.mark.parametrize("group", ["", *GROUPS, "limits", "supervision"])
def test_the_schema_is_one(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", *([group] if group else [])]) == 0
    Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF_DIR)))
def test_every_shipped_file_is_valid(path: Path) -> None:
    document = OmegaConf.to_container(OmegaConf.load(path))
    assert problems(document, "" if path.parent.name in ("conf", "experiment") else path.parent.name) == []


GRPO = "defaults: [{override /trainer: grpo}]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limts: {generations: 4}", "'limts' was unexpected"),
        ("limits: {generatoins: 4}", "$.limits: Additional properties"),
        ("limits: {generations: 2.5}", "$.limits.generations: 2.5 is not of type 'integer'"),
        ("limits: {generations: many}", "$.limits.generations: 'many' does not match"),
        ("limits: {generations: null}", "$.limits.generations: None is not of type"),
        ("limits: 3", "$.limits: 3 is not of type"),
        ("model: {dtype: float8}", "$.model.dtype: 'float8' is not valid"),
        ("generation: {env: {A: 1}}", "$.generation.env.A: 1 is not of type 'string'"),
        ("generation: {weight_sync: {verify_evry: 1}}", "$.generation.weight_sync: Additional"),
        ("reward: {functions: [{name: a, wieght: 2}]}", "$.reward.functions[0]: Additional"),
        ("reward: {functions: [{granularity: all}]}", "$.reward.functions[0].granularity: 'all' is not valid"),
        ("trainer: {kind: gpro}", "$.trainer.kind: 'gpro' is not valid"),
        ("trainer: {args: {betta: 1}}", "$.trainer.args: Additional"),
        ("trainer: {args: {max_steps: soon}}", "$.trainer.args.max_steps: 'soon'"),
        ("trainer: {kind: grpo, args: {max_new_tokens: 4}}", "$.trainer.args: Additional"),
        ("trainer: {kind: grpo, args: {loss_type: dr-grpo}}", "$.trainer.args.loss_type: 'dr-grpo' is not valid"),
        (f"{GRPO}\ntrainer: {{args: {{max_new_tokens: 4}}}}", "$.trainer.args: Additional"),
        (f"{GRPO}\ntrainer: {{args: {{beta: true}}}}", "$.trainer.args.beta: True is not of type 'number'"),
        ("defaults: grpo", "$.defaults: 'grpo' is not of type 'array'"),
    ],
)
def test_what_the_checks_refuse_is_refused_in_the_editor(text: str, says: str) -> None:
    assert says in "\n".join(problems(yaml.safe_load(text)))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "limits: {generations: '${x}', prompt_length: '???'}",
        "limits: ${other.limits}",
        "generation: {port: auto, weight_sync: '${x}', gpus: [0, '${x}']}",
        "generation: {port: 8000}",
        "model: {name: 7}",
        "reward: {functions: '${x}'}",
        "reward: {functions: [{name: a, granularity: null, params: {anything: {at: all}}}]}",
        "trainer: {args: {max_new_tokens: 4, max_completion_length: 3}}",
        "trainer: {kind: online_dpo, args: {max_new_tokens: 4}}",
        "trainer: {kind: '${x}', args: {anything: 4}}",
        "trainer: {kind: grpo, args: {scale_rewards: false, lr_scheduler_type: '${x}', optim: adafactor}}",
        "trainer: {kind: grpo, args: {report_to: none, learning_rate: 1, warmup_steps: 0.1}}",
        "{defaults: [/trainer: command], trainer: {args: {max_total_length: 9}}}",
        "{defaults: [_self_, {override /generation@x: vllm}], hydra: {sweeper: {params: {seed: '1,2'}}}}",
    ],
)
def test_what_is_right_is_not_refused(text: str) -> None:
    assert problems(yaml.safe_load(text)) == []


def test_a_trainer_of_the_users_own_decides_what_args_may_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "mine.yaml").write_text("kind: online_dpo\n", encoding="utf-8")
    assert main(["schema", "--config-dir", str(tmp_path)]) == 0
    validator = Draft202012Validator(json.loads(capsys.readouterr().out))
    recipe = {"defaults": [{"override /trainer": "mine"}], "trainer": {"args": {"num_generations": 8}}}
    assert not validator.is_valid(recipe)
    assert validator.is_valid(recipe | {"trainer": {"args": {"max_new_tokens": 8}}})


VALUES = ("word", 1, 0.5, True, None, [1], ["word"], {"a": 1}, {"a": "word"})


def test_a_type_accepts_what_the_checks_accept() -> None:
    """Every annotation of the schema's plain fields and of TRL's, against orchestrator/fields/types.py."""
    ours = (field.annotation for doc in schema_docs().values() for field in doc.fields.values())
    theirs = (fact.annotation for kind in ("grpo", "rloo", "online_dpo") for fact in trainer_fields(kind).values())
    for annotation in {a for a in (*ours, *theirs) if "Config" not in a}:
        validator = Draft202012Validator(type_of(annotation))
        for value in VALUES:
            assert accepts(annotation, value) == validator.is_valid(value), (annotation, value)


def test_every_field_is_there_with_its_docstring_and_default() -> None:
    made = recipe_schema([CONF_DIR])
    for name, doc in schema_docs().items():
        properties = (made if name == "RunConfig" else made["$defs"][name])["properties"]
        for field in dataclasses.fields(getattr(schema, name)):
            body = properties[field.name]
            assert body.get("description", "") == doc.fields[field.name].meaning
            if field.default is not dataclasses.MISSING:
                assert body["default"] == field.default


@pytest.mark.parametrize(("words", "says"), [(["generatoin"], "generation"), (["model", "data"], "one group")])
def test_an_unknown_group_is_exit_code_64(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", *words]) == 64
    assert says in capsys.readouterr().err
