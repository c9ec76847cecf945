"""Overrides to a resolved recipe: what Hydra would refuse or hide is a Problem, all of them at once."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from orchestrator.compose import CommandLineError, Composer, RecipeError
from orchestrator.resolve import Problem, auto_ports, resolve, settled
from orchestrator.schema import RunConfig

EXPERIMENT = "+experiment=grpo_math"


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def resolved(composer: Composer, *overrides: str) -> tuple[RunConfig, tuple[Problem, ...]]:
    return resolve(composer.compose([EXPERIMENT, *overrides]).raw)


def test_a_shipped_recipe_resolves_without_a_problem(composer: Composer) -> None:
    run, problems = resolved(composer)
    assert problems == ()
    assert run.generation.max_model_len == run.limits.prompt_length + run.limits.completion_length
    assert run.trainer.args["max_completion_length"] == run.limits.completion_length
    assert run.generation.model == run.model.name


def test_a_shared_fact_reaches_every_part(composer: Composer) -> None:
    run, _ = resolved(composer, "limits.completion_length=12", "limits.generations=4", "seed=7")
    assert run.trainer.args["max_completion_length"] == 12
    assert run.trainer.args["num_generations"] == 4
    assert run.generation.max_model_len == 28
    assert run.trainer.args["seed"] == run.data.seed == 7


@pytest.mark.parametrize(
    "override", ["trainer.args.beta=0.1", "trainer.args.top_k=5", "+trainer.args.top_k=5", "++trainer.args.top_k=5"]
)
def test_a_field_that_no_yaml_mentions_needs_no_plus(composer: Composer, override: str) -> None:
    run, problems = resolved(composer, override)
    key, _, value = override.rpartition(".")[2].partition("=") if "beta" not in override else ("beta", "", "0.1")
    assert problems == ()
    assert str(run.trainer.args[key]) == value


def test_every_problem_is_found_at_once(composer: Composer) -> None:
    _, problems = resolved(
        composer,
        "generaton.port=1",
        "limits.generations=many",
        "model.dtype=float8",
        "reward.timeout_s=soon",
        "seed=1.5",
    )
    assert {(p.kind, p.path) for p in problems} == {
        ("unknown", "generaton.port"),
        ("type", "limits.generations"),
        ("choice", "model.dtype"),
        ("type", "reward.timeout_s"),
        ("type", "seed"),
    }


def test_a_broken_interpolation_hides_nothing(composer: Composer) -> None:
    run, problems = resolved(composer, "generation.model=${modle.name}", "trainer.args.beta=${nothing}")
    assert {(p.kind, p.path) for p in problems} == {
        ("interpolation", "generation.model"),
        ("interpolation", "trainer.args.beta"),
    }
    assert run.trainer.args["max_steps"] == 200


def test_experiment_without_plus_is_what_people_type(composer: Composer) -> None:
    assert resolve(composer.compose(["experiment=grpo_math"]).raw)[0].name == "grpo_math"


def test_unknown_experiment_names_the_known_ones(composer: Composer) -> None:
    with pytest.raises(RecipeError, match="grpo_math"):
        composer.compose(["+experiment=grpo_maths"])


def test_several_values_need_m(composer: Composer) -> None:
    with pytest.raises(CommandLineError, match="-m"):
        composer.compose([EXPERIMENT, "seed=1,2"])


def test_a_list_element_can_be_overridden(composer: Composer) -> None:
    run, problems = resolved(composer, "reward.functions.0.weight=0.5")
    assert (problems, run.reward.functions[0].weight) == ((), 0.5)


def test_an_override_that_cannot_be_applied_is_kept(composer: Composer) -> None:
    composed = composer.compose([EXPERIMENT, "reward.functions.9.weight=1", "~trainer.args.nothing"])
    assert len(composed.rejected) == 2


def test_a_users_own_recipes(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [grpo_math, _self_]\nname: mine\nseed: 5\n"
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "own.yaml").write_text("name: /models/own\ndtype: float32\n")
    run, problems = resolve(Composer(str(tmp_path)).compose(["+experiment=mine", "model=own"]).raw)
    assert (problems, run.name, run.seed, run.generation.model) == ((), "mine", 5, "/models/own")


def test_a_sweep_is_the_grid_of_its_values(composer: Composer) -> None:
    jobs = composer.combinations(
        [EXPERIMENT, "seed=range(0,2)", "trainer.args.beta=0.0,0.1", "limits.generations=choice(4,8)"]
    )
    assert len(jobs) == 8
    assert all(job[0] == EXPERIMENT for job in jobs)


def test_overrides_for_hydra_never_meet_an_unknown_key(composer: Composer) -> None:
    assert composer.for_hydra(
        ["experiment=grpo_math", "trainer.args.beta=0", "+a.b=1", "model=path", "~data.rows"]
    ) == [
        "+experiment=grpo_math",
        "++trainer.args.beta=0",
        "++a.b=1",
        "model=path",
        "~data.rows",
    ]


def test_auto_ports_are_those_of_services_that_the_run_starts(composer: Composer) -> None:
    raw = composer.compose([EXPERIMENT]).raw
    assert set(auto_ports(raw)) == {"generation.port", "reward.port"}
    OmegaConf.update(raw, "generation.port", 8123)
    assert resolve(raw)[0].generation.url == "http://127.0.0.1:8123"
    assert auto_ports(composer.compose([EXPERIMENT, "reward=inprocess", "generation.port=8000"]).raw) == ()


def test_an_address_names_its_port(composer: Composer) -> None:
    run, problems = resolved(composer, "reward=external", "reward.url=http://127.0.0.1:9000")
    assert (problems, run.reward.port) == ((), 9000)


def test_a_misspelt_key_inside_a_users_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    recipe = (
        "# @package _global_\ndefaults: [grpo_math, _self_]\ngeneraton: {port: 1}\ntrainer: {args: {max_steps: many}}\n"
    )
    (tmp_path / "experiment" / "mine.yaml").write_text(recipe)
    run, problems = resolve(Composer(str(tmp_path)).compose(["+experiment=mine"]).raw)
    assert [(p.kind, p.path) for p in problems] == [("unknown", "generaton.port")]
    assert run.trainer.args["max_steps"] == "many"  # for CFG002, which knows TRL's types


SWEPT = """\
# @package _global_
defaults: [grpo_math, _self_]
hydra: {sweeper: {params: {seed: '1,2', trainer.args.beta: '0.0,0.1'}}}
"""


def test_a_sweep_that_a_recipe_holds(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "swept.yaml").write_text(SWEPT)
    composer = Composer(str(tmp_path))
    assert len(composer.combinations(["+experiment=swept"])) == 4
    assert len(composer.combinations(["+experiment=swept", "seed=7"])) == 2


@pytest.mark.parametrize("override", ["hydra/sweeper=optuna", "hydra/launcher=joblib"])
def test_other_sweepers_and_launchers_are_refused(composer: Composer, override: str) -> None:
    with pytest.raises(CommandLineError, match="basic"):
        composer.combinations([EXPERIMENT, override])


def test_what_only_hydra_knows_resolves_and_is_written_out_for_a_resume(composer: Composer) -> None:
    raw = composer.compose([EXPERIMENT, "name=${hydra:runtime.choices.trainer}", "trainer.args.run_name=${now:%Y}"]).raw
    run, problems = resolve(raw)
    assert (problems, run.name) == ((), "grpo")
    written = OmegaConf.to_yaml(settled(raw))
    assert "${hydra:" not in written
    assert "${now:" not in written
    assert "${limits.completion_length}" in written
