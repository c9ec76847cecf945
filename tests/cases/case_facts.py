"""Facts as data: what is true around a row, in the place of a look at this machine."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import yaml
from neutral_settings import HERE, Recipe

from orchestrator.data import DataFacts
from orchestrator.facts import Facts, ModelFacts
from orchestrator.facts.types import EnvironmentSize, Gpu
from orchestrator.fields.source import SourceUnreadableError
from orchestrator.fields.trainer import trainer_fields
from orchestrator.schema import RunConfig
from rewards.calling.signature import Signature

UNSAID = "the row does not say"
# Enough rows for any batch, and prompts that nothing is known of.
DATA = DataFacts(columns=("prompt",), rows=1_000_000, longest_prompt_chars=1, fingerprint="", first_rows=())
VERSIONS = {"trl": "1.16.0", "transformers": "5.19.0"}
"""What we are tested with: a row that names no version runs with these."""


def facts_of(run: RunConfig, told: Mapping[str, Any]) -> Facts:
    """`told` names fields of Facts; `model` and `data` only what differs from the table and DATA, `signatures` only
    the columns that a target requires."""
    data = replace(DATA, **_frozen(told.get("data", {})))
    targets = [function.target for function in run.reward.functions]
    sizes = told.get("environment_size")
    facts = Facts(
        versions=VERSIONS | told.get("versions", {}),
        generation_versions=told.get("generation_versions", UNSAID),
        models=_models(run, told.get("model", {})),
        data=data,
        heldout=data if run.evaluation.rows > 0 else None,
        signatures={target: _signature(told.get("signatures", {}).get(target, ())) for target in targets},
        trainer_fields=_fields(run.trainer.kind),
        generation_fields=UNSAID,
        gpus=tuple(Gpu(**gpu) for gpu in told["gpus"]) if "gpus" in told else UNSAID,
        listening=frozenset(told.get("listening", ())),
        # The recipe's programs are there, and the rows that lack cores say so.
        programs=frozenset({*run.trainer.argv[:1], "python"}),
        num_cpus=told.get("num_cpus", 1024),
        environment_size=EnvironmentSize(**sizes) if sizes else None,
    )
    plain = ("prompt_tokens", "launcher_config", "busy_ports")
    return replace(facts, **{key: told[key] for key in plain if key in told})


def of_recipe(recipe: Recipe, run: RunConfig) -> Facts:
    told: dict[str, Any] = {"listening": recipe.listening}
    if recipe.has("h.vllm"):
        vllm = {"vllm": recipe.text("h.vllm")}
        told |= {"versions": vllm, "generation_versions": vllm}
    return facts_of(run, told)


@cache
def _table() -> dict[str, ModelFacts]:
    rows = yaml.safe_load((HERE / "models.yaml").read_text(encoding="utf-8"))
    return {name: _model(name, row) for name, row in rows.items()}


def _model(name: str, row: Mapping[str, Any]) -> ModelFacts:
    heads, kv_heads = row.get("heads", (None, None))
    return ModelFacts(
        path=name,
        vocab_size=row["vocab"],
        num_tokens=None,
        max_positions=row["positions"],
        has_chat_template=True,
        num_layers=row.get("layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=row.get("head_dim"),
        num_experts=row.get("experts", 0),
    )


def _models(run: RunConfig, told: Mapping[str, Any]) -> dict[str, ModelFacts | str]:
    """A name that is in no table is nowhere on this machine."""
    names = {run.model.name, run.generation.model} - {""}
    return {
        name: replace(_table()[name], **_frozen(told))
        if name in _table()
        else f"{name} is neither a folder nor in the local hub cache"
        for name in names
    }


def _frozen(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}


def _signature(required: Any) -> Signature:
    return Signature(
        shape="trl",
        required=tuple(required),
        optional=(),
        accepts_kwargs=True,
        is_async=False,
        path=None,
        line=0,
        parameters=("completions", *required),
    )


def _fields(kind: str) -> Any:
    try:
        return trainer_fields(kind)
    except SourceUnreadableError as error:
        return str(error)
