"""A rule yields findings, whatever stands in a recipe: settings of the schema and arguments, with odd values."""

import dataclasses
import random
from collections.abc import Iterator
from typing import get_type_hints

import pytest

from orchestrator.compose import CommandLineError, Composer, RecipeError
from orchestrator.facts import FactsCache, gather
from orchestrator.fields.trainer import trainer_fields
from orchestrator.resolve import resolve
from orchestrator.rules import Case, check
from orchestrator.schema import RunConfig

VALUES = ("0", "-1", "null", "true", "''", "abc", "1.5", "[]", "[1]", "[a]", "{}", "{a: 1}", "1000003", "'${nope}'")
ENGINE = ("gpu_memory_utilization", "max_num_batched_tokens", "hf_overrides", "max_lora_rank", "pipeline_parallel_size")
RECIPES = {
    "shipped": (),
    "vllm": ("generation=vllm", "hardware.gpus=8", "launcher=torchrun", "generation.args.enable_lora=true"),
    "colocate": ("generation=colocate", "hardware.gpus=8", "launcher=deepspeed", "launcher.zero_stage=2"),
    "no servers": ("generation=inprocess", "reward=inprocess"),
    "external": ("generation=external", "generation.url=http://h:8000", "reward=external", "reward.url=http://h:9000"),
    "foreign": ("trainer=command", "trainer.argv=[python3]", "trainer.args.group_relative=true", "launcher=accelerate"),
    "judged": ("generation=vllm", "reward.judge.max_model_len=100", "reward.environment.max_turns=3"),
}
SAMPLE = 150
"""Of each recipe; the seed is fixed, so a failure is the same everywhere."""


def settings(cls: type, path: str = "") -> Iterator[str]:
    for name, kind in get_type_hints(cls).items():
        if dataclasses.is_dataclass(kind):
            yield from settings(kind, f"{path}{name}.")  # type: ignore[arg-type]
        else:
            yield f"{path}{name}"


EVERY = [
    *settings(RunConfig),
    *(f"trainer.args.{name}" for name in trainer_fields("grpo")),
    *(f"generation.args.{name}" for name in ENGINE),
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_value_of_any_setting_makes_a_rule_raise(recipe: str) -> None:
    composer, cache = Composer(), FactsCache()
    draws = random.Random(recipe).sample([(path, value) for path in EVERY for value in VALUES], SAMPLE)
    for path, value in draws:
        kept = [word for word in RECIPES[recipe] if word.partition("=")[0] != path]
        try:
            with composer.lent(["+experiment=grpo_math", *kept, f"{path}={value}"]) as composed:
                run, problems = resolve(composed.raw)
                case = Case(run=run, facts=gather(run, cache), problems=problems, rejected=composed.rejected)
        except (CommandLineError, RecipeError):
            continue  # that is not a recipe, and says so
        try:
            assert all(f.problem and f.why and f.fix for f in check(case))
        except Exception as error:
            raise AssertionError(f"{path}={value} beside {kept}") from error
