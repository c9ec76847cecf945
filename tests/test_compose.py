"""Overrides to a resolved recipe: what Hydra would refuse or hide is a Problem, all of them at once."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.compose import CommandLineError, Composer, RecipeError
from orchestrator.reading import Problem
from orchestrator.request import Request, requested
from orchestrator.resolve import auto_ports, resolve, settled
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


def test_a_deletion_that_hydra_would_refuse_is_rejected_by_the_check() -> None:
    """`data.path` has a default in the schema, and no file writes it: Hydra does not know the key."""
    composed = Composer().compose([EXPERIMENT, "~data.path", "~trainer.args.beta"])
    (reason,) = composed.rejected
    assert reason.startswith("~data.path: no file writes it")
    assert "beta" not in composed.raw.trainer.args


def test_a_users_own_recipes(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [grpo_math, _self_]\nname: mine\nseed: 5\n"
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "own.yaml").write_text("name: /models/own\ndtype: float32\n")
    run, problems = resolve(Composer(str(tmp_path)).compose(["+experiment=mine", "model=own"]).raw)
    assert (problems, run.name, run.seed, run.generation.model) == ((), "mine", 5, "/models/own")


def sweep(composer: Composer, *overrides: str) -> Request:
    return requested(composer, overrides, multirun=True)


def test_a_sweep_is_the_grid_of_its_values(composer: Composer) -> None:
    swept = ["seed=range(0,2)", "trainer.args.beta=0.0,0.1", "limits.generations=choice(4,8)"]
    jobs = sweep(composer, EXPERIMENT, *swept).jobs
    assert len(jobs) == 8
    assert jobs[1] == (EXPERIMENT, "seed=0", "trainer.args.beta=0.0", "limits.generations=8")


def test_hydra_launches_the_jobs_that_were_checked(composer: Composer) -> None:
    """What `shuffle` draws and `glob` finds is decided once, and a key that is given twice counts once."""
    shuffled = ["seed=shuffle(range(0,9))", "reward=glob([in*,loc*])", "trainer.args.beta=0,1", "++trainer.args.beta=2"]
    request = sweep(composer, EXPERIMENT, *shuffled)
    seeds = [int(job[1].removeprefix("seed=")) for job in request.jobs[::2]]
    assert sorted(seeds) == list(range(9))
    assert request.jobs[0][2:] == ("reward=inprocess", "trainer.args.beta=2")
    assert request.for_hydra == (
        EXPERIMENT,
        f"++seed={','.join(map(str, seeds))}",
        "reward=inprocess,local",
        "++trainer.args.beta=2",
    )


def test_overrides_for_hydra_never_meet_an_unknown_key(composer: Composer) -> None:
    overrides = ["experiment=grpo_math", "trainer.args.beta=0", "+a.b=1", "model=path", "~data.rows"]
    assert requested(composer, overrides, multirun=False).for_hydra == (
        "+experiment=grpo_math",
        "++trainer.args.beta=0",
        "++a.b=1",
        "model=path",
        "~data.rows",
    )


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
hydra: {mode: MULTIRUN, sweeper: {params: {seed: '1,2', trainer.args.top_k: '5,6'}}}
"""


def test_a_sweep_that_a_recipe_holds(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "swept.yaml").write_text(SWEPT)
    composer = Composer(str(tmp_path))
    request = requested(composer, ["+experiment=swept"], multirun=False)  # it asks for the sweep itself
    assert request.multirun
    assert len(request.jobs) == 4
    # Hydra would refuse top_k, which no YAML mentions, and would sweep the recipe's own words again.
    assert request.for_hydra == (
        "++seed=1,2",
        "++trainer.args.top_k=5,6",
        "+experiment=swept",
        "hydra.sweeper.params=null",
    )
    assert len(sweep(composer, "+experiment=swept", "seed=7").jobs) == 2
    assert {job[-1] for job in sweep(composer, "+experiment=glob(s*)").jobs} == {"+experiment=swept"}


def test_a_folder_of_recipes_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "it's [mine], really"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "swept.yaml").write_text(SWEPT)
    assert Composer(str(folder)).compose(["+experiment=swept"]).raw.name == "grpo_math"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("seed=interval(0,1)", "intervals"),
        ("hydra/launcher=basic,basic", "cannot be swept"),
        ("reward=glob(z*)", "external, inprocess, local"),
        ("seed=glob(*)", "nothing"),
    ],
)
def test_what_no_sweep_can_be_made_of(composer: Composer, override: str, says: str) -> None:
    with pytest.raises(CommandLineError, match=says):
        sweep(composer, EXPERIMENT, override)


@pytest.mark.parametrize("override", ["hydra/sweeper=optuna", "hydra/launcher=joblib"])
def test_a_plugin_that_is_not_installed(composer: Composer, override: str) -> None:
    with pytest.raises(RecipeError, match=r"Could not find(.|\n)+basic"):
        sweep(composer, EXPERIMENT, override)


@pytest.mark.parametrize("override", ["seed=1,2", "reward=local,inprocess", "+experiment=glob(*)"])
def test_a_sweep_needs_m(composer: Composer, override: str) -> None:
    with pytest.raises(CommandLineError, match="-m"):
        composer.compose([override])


def test_a_recipe_that_is_lent_is_given_back_as_it_was(composer: Composer) -> None:
    overrides = [
        "seed=9",
        "~trainer.env",
        "new.key=1",
        "trainer.args={beta: 1}",
        "~name",
        "reward.functions.0.weight=3",
    ]
    before = OmegaConf.to_yaml(composer.compose([EXPERIMENT]).raw)
    with composer.lent([EXPERIMENT, *overrides]) as lent:
        changed = OmegaConf.to_yaml(lent.raw)
        with pytest.raises(RuntimeError, match="one recipe"):
            composer.compose([EXPERIMENT])
    assert changed == OmegaConf.to_yaml(Composer().compose([EXPERIMENT, *overrides]).raw)
    assert changed != before == OmegaConf.to_yaml(composer.compose([EXPERIMENT]).raw)


def test_what_refers_to_a_missing_value_is_not_reported_beside_it(composer: Composer) -> None:
    _, problems = resolved(composer, "model=path", "trainer.args.run_name=${model.name}", "name=x${model.name}")
    assert [(problem.kind, problem.path) for problem in problems] == [("missing", "model.name")]


def test_every_combination_sees_hydra_as_its_own_groups_choose_it(composer: Composer) -> None:
    """The composed groups are kept, and with them what `${hydra:...}` says."""
    name = "name=${hydra:runtime.choices.reward}"
    seen = [resolved(composer, f"reward={kind}", name)[0].name for kind in ("local", "inprocess", "local", "inprocess")]
    assert seen == ["local", "inprocess", "local", "inprocess"]


@pytest.mark.parametrize(
    "text",
    [
        "${seed}",
        "${model.name}",
        "${generation.host}:${generation.port}",
        "http://${reward.host}:${reward.port}/x",
        "${model.revision}",
        "a ${model.revision} b",
        "${model.trust_remote_code} b",
        "${reward.timeout_s}s",
        "${reward}",
        "${trainer.args}",
        "${sum:1,${seed}}",
        "$${seed}",
        "\\${seed}",
        "\\\\${seed}",
        "${model.${name}}",
        "${nothing}",
        "${model.nothing}",
        "${seed.nothing}",
        "${ seed }",
        "$ ${seed}",
        "${reward.functions.0.name}",
        "${reward.functions}",
        "${data.path}",
        "${data.heldout_path} x",
        "???",
    ],
)
def test_the_short_cut_through_interpolations_is_omegaconfs_own_way(composer: Composer, text: str) -> None:
    raw = composer.compose([EXPERIMENT, "name=dtype"]).raw
    OmegaConf.update(raw, "trainer.args.run_name", text)
    run, problems = resolve(raw)
    try:
        expected = OmegaConf.to_container(raw.trainer.args, resolve=True, throw_on_missing=True)["run_name"]
    except OmegaConfBaseException:
        assert "trainer.args.run_name" in {problem.path for problem in problems}
        assert "run_name" not in run.trainer.args
    else:
        assert run.trainer.args["run_name"] == expected


def test_what_only_hydra_knows_resolves_and_is_written_out_for_a_resume(composer: Composer) -> None:
    raw = composer.compose([EXPERIMENT, "name=${hydra:runtime.choices.trainer}", "trainer.args.run_name=${now:%Y}"]).raw
    run, problems = resolve(raw)
    assert (problems, run.name) == ((), "grpo")
    written = OmegaConf.to_yaml(settled(raw))
    assert "${hydra:" not in written
    assert "${now:" not in written
    assert "${limits.completion_length}" in written
