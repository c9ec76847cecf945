"""TRL's batch arithmetic: ours against the installed TRL's own."""

import ast
from typing import Any

import pytest

from orchestrator.fields.trainer import TRAINER_KINDS, trainer_fields
from orchestrator.fields.types import accepts
from orchestrator.ledgers.batches import DEFAULTS, batch_plan

ARGS: list[dict[str, Any]] = [
    {"per_device_train_batch_size": 128, "num_generations": 8},
    {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "num_generations": 8},
    {
        "per_device_train_batch_size": 4,
        "steps_per_generation": 6,
        "num_generations": 8,
        "gradient_accumulation_steps": 2,
    },
    {"per_device_train_batch_size": 4, "generation_batch_size": 48, "num_generations": 8},
    {},
]


@pytest.mark.parametrize("args", ARGS, ids=str)
def test_the_plan_is_what_trl_computes(args: dict[str, Any], tmp_path: Any) -> None:
    from trl import GRPOConfig

    config = GRPOConfig(output_dir=str(tmp_path), bf16=False, **args)
    plan = batch_plan(args, world=1)
    assert plan is not None
    assert (plan.generation_batch, plan.steps_per_generation) == (
        config.generation_batch_size,
        config.steps_per_generation,
    )


@pytest.mark.parametrize(
    "args", [{"per_device_train_batch_size": "8"}, {"num_generations": 0}, {"steps_per_generation": 1.5}]
)
def test_no_plan_from_what_is_no_count(args: dict[str, Any]) -> None:
    assert batch_plan(args, world=1) is None


@pytest.mark.parametrize(
    ("args", "micro_steps", "generated_at"),
    [
        ({"per_device_train_batch_size": 8}, [0, 1, 2], [0, 1, 2]),
        ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}, [0, 0, 1, 1, 2, 2], [0, 1, 2]),
        ({"per_device_train_batch_size": 8, "steps_per_generation": 2}, [0, 1, 2, 3, 4], [0, 2, 4]),
        ({"per_device_train_batch_size": 8, "num_iterations": 2}, [0, 1, 2, 3, 4], [0, 2, 4]),
        (
            {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "steps_per_generation": 2},
            [0, 0, 0, 0, 1, 1, 1, 1],
            [0, 0, 1, 1],
        ),
        # An epoch of four micro-steps, three to a step: its last step has one.
        ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 3}, [0, 0, 0, 1, 2, 2, 2, 3], [0, 1, 2]),
    ],
)
def test_when_completions_are_generated(args: dict[str, Any], micro_steps: list[int], generated_at: list[int]) -> None:
    plan = batch_plan(args, world=1)
    assert plan is not None
    assert plan.generated_at(micro_steps) == generated_at


def test_our_defaults_are_the_installed_ones() -> None:
    fields = trainer_fields("grpo")
    assert {key: ast.literal_eval(fields[key].default) for key in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("kind", [kind for kind, known in TRAINER_KINDS.items() if known.config])
def test_fields_read_from_source_are_the_real_class(kind: str) -> None:
    import dataclasses
    import importlib

    module, name = TRAINER_KINDS[kind].config.split(":")
    real = {
        f.name for f in dataclasses.fields(getattr(importlib.import_module(module), name)) if not f.name.startswith("_")
    }
    assert set(trainer_fields(kind)) == real
    named = (TRAINER_KINDS[kind].completion_length, TRAINER_KINDS[kind].generations)
    assert {field for field in named if field} <= real


@pytest.mark.parametrize(
    ("annotation", "fits", "does_not"),
    [
        ("int", [1, 0], [1.5, "1", True, None]),
        ("float | None", [1, 1.5, None], ["1.5", True, [1.0]]),
        ("bool", [True, False], [0, "true"]),
        ("list[float] | None", [[1, 2.5], [], None], [1.0, ["a"]]),
        ("dict[str, typing.Any] | str | None", [{"a": 1}, "x", None], [1]),
        ("SchedulerType | str", ["constant"], [5, True]),
        ("str | None | Literal[False]", ["a", None, False], [1, True]),
        ("Optional[int]", [None, 3], ["3"]),
    ],
)
def test_what_fits_an_annotation(annotation: str, fits: list[Any], does_not: list[Any]) -> None:
    assert all(accepts(annotation, value) for value in fits)
    assert not any(accepts(annotation, value) for value in does_not)


def test_words_read_from_source_are_those_of_the_enums() -> None:
    from transformers.trainer_utils import SchedulerType
    from transformers.training_args import OptimizerNames

    fields = trainer_fields("grpo")
    assert fields["lr_scheduler_type"].choices == tuple(member.value for member in SchedulerType)
    assert set(fields["optim"].choices) == {member.value for member in OptimizerNames}


@pytest.mark.parametrize(
    "field", ["loss_type", "importance_sampling_level", "multi_objective_aggregation", "scale_rewards"]
)
def test_words_of_trl_are_all_in_its_trainer(field: str) -> None:
    """Listed by hand, as TRL has no enum for them: each must stand in the installed trainer."""
    import inspect

    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer)
    words = trainer_fields("grpo")[field].choices
    assert words
    assert [word for word in words if f'"{word}"' not in source] == []
