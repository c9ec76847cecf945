"""`orchestrate why` tells the truth: of every setting of every shipped recipe, and of layers at random."""

import dataclasses
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from orchestrator.cli import main
from orchestrator.compose import CONF_DIR, Composer, Layer
from orchestrator.fields.docs import SOURCE
from orchestrator.fields.trainer import trainer_fields
from orchestrator.resolve import resolve
from orchestrator.schema import RunConfig
from orchestrator.why import Explained, Recipe
from orchestrator.why.defaults import SET_BY_RUN
from orchestrator.why.interpolations import references
from orchestrator.why.keys import ABSENT, at, leaves
from orchestrator.why.layers import marked_file, read, statements

EXPERIMENT = "+experiment=grpo_math"
EXPERIMENTS = sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))
OPTIONS = sorted(
    f"{path.parent.name}={path.stem}" for path in CONF_DIR.glob("*/*.yaml") if path.parent.name != "experiment"
)
PARTS = [field.name for field in dataclasses.fields(RunConfig)]


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["why", *words]) == 0
    return capsys.readouterr().out


def entry(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The only setting that is asked for, as data."""
    (only,) = json.loads(told([*words, "--json"], capsys))
    assert isinstance(only, dict)
    return only


# --- against the truth -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [[f"+experiment={name}"] for name in EXPERIMENTS] + [[option] for option in OPTIONS])
def test_every_setting_of_every_shipped_file_is_where_it_is_said_to_be(composer: Composer, choice: list[str]) -> None:
    recipe, raw = Recipe(composer, choice), composer.compose(choice).raw
    run = dataclasses.asdict(resolve(raw)[0])
    explained = [recipe.explain(leaf) for part in PARTS for leaf in recipe.leaves(part)]
    assert {one.key for one in explained} >= set(leaves(run))
    for one in explained:
        assert one.value in (at(run, one.key), "???") or "cannot be computed" in str(one.notes), one.key
        assert_true(one, raw)


def assert_true(one: Explained, raw: DictConfig) -> None:
    """The recipe holds what is written at the place, and the place is a line that writes it."""
    name = one.key.rpartition(".")[2]
    written = at(OmegaConf.to_container(raw, resolve=False), one.key)
    if one.place.kind == "schema":
        assert written == one.value or written is ABSENT  # the defaults of a list's items are in no file
        assert line_of(SOURCE, one.place.line).startswith(f"{name}: ")
        return
    assert one.place.kind == "file"
    assert one.place.file is not None
    assert written == one.place.written, one.key
    line = yaml.safe_load(line_of(one.place.file, one.place.line).removeprefix("- "))
    assert line[name] in (one.place.written, None), one.key  # None = a list or mapping that starts on the next line


def line_of(path: Path, number: int | None) -> str:
    assert number is not None
    return path.read_text(encoding="utf-8").splitlines()[number - 1].strip()


def test_a_changed_line_changes_the_value_that_it_is_said_to_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number of the shipped experiment, changed in a copy of conf/ at the line that `why` names."""
    monkeypatch.setattr("orchestrator.compose.CONF_DIR", tmp_path)
    for source in CONF_DIR.rglob("*.yaml"):
        copy = tmp_path / source.relative_to(CONF_DIR)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source.read_bytes())
    recipe = Recipe(Composer(), [EXPERIMENT])
    numbers = [one for key in PARTS for leaf in recipe.leaves(key) if is_number((one := recipe.explain(leaf)).value)]
    literals = [one for one in numbers if one.place.kind == "file" and is_number(one.place.written)]
    assert len(literals) > 20
    for one in literals:
        assert one.place.file is not None
        assert one.place.line is not None
        lines = one.place.file.read_text(encoding="utf-8").splitlines(keepends=True)
        key, _, _ = lines[one.place.line - 1].partition(":")
        changed = [*lines[: one.place.line - 1], f"{key}: 987654\n", *lines[one.place.line :]]
        one.place.file.write_text("".join(changed), encoding="utf-8")
        assert OmegaConf.select(Composer().compose([EXPERIMENT]).raw, one.key) == 987654, one.key
        one.place.file.write_text("".join(lines), encoding="utf-8")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


NAMES = st.sampled_from(["a", "b", "c"])


def trees(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    inner = st.recursive(
        leaf,
        lambda held: st.dictionaries(NAMES, held, max_size=3) | st.lists(st.dictionaries(NAMES, leaf), max_size=2),
        max_leaves=6,
    )
    return st.dictionaries(NAMES, inner, max_size=3)


LEAVES = st.just(0) | st.none() | st.just("???")
OVERRIDES = st.tuples(
    st.lists(NAMES, min_size=1, max_size=3), st.just(0) | st.none() | trees(st.just(0)) | st.just("~")
)


@settings(deadline=None)
@given(st.lists(trees(LEAVES), min_size=1, max_size=4), st.lists(OVERRIDES, max_size=3))
def test_the_last_statement_is_what_omegaconf_merges(
    tmp_path_factory: pytest.TempPathFactory, files: list[dict[str, Any]], overrides: list[tuple[list[str], Any]]
) -> None:
    """Every leaf holds a number of its own, so that an equal value is the same place."""
    folder, counter = tmp_path_factory.mktemp("layers"), iter(range(1, 10**6))
    merged, layers = OmegaConf.create({}), []
    for number, content in enumerate(numbered(content, counter) for content in files):
        path = folder / f"{number}.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        try:
            merged.merge_with(OmegaConf.load(path))
        except TypeError:
            return  # a list over a mapping: Hydra refuses it, so there is nothing to explain
        layers.append((Layer(package="", file=path), marked_file(path)))
    for names, content in overrides:
        merged, layer = applied(merged, ".".join(names), numbered(content, counter))
        layers += read(layer)
    final = OmegaConf.to_container(merged)
    every = {leaf for _, tree in layers for leaf in leaves(tree.plain())} | set(leaves(final))
    for key in every - {""}:
        said, value = statements(layers, key), at(final, key)
        if value is ABSENT:
            assert not said or said[-1].removes, key
        elif not isinstance(value, (dict, list)):
            assert (said[-1].value, said[-1].removes, said[-1].at) == (value, False, key)


def numbered(content: Any, counter: Any) -> Any:
    if isinstance(content, dict):
        return {name: numbered(child, counter) for name, child in content.items()}
    if isinstance(content, list):
        return [numbered(item, counter) for item in content]
    return next(counter) if content == 0 else content


def applied(merged: DictConfig, key: str, value: Any) -> tuple[DictConfig, list[Layer]]:
    """The override, applied as orchestrator/compose.py does; no layer = it cannot be."""
    result, (parent, _, name) = deepcopy(merged), key.rpartition(".")
    if value == "~":
        node = at(OmegaConf.to_container(result), parent) if parent else {}
        node = OmegaConf.select(result, parent) if isinstance(node, dict) else None
        if not isinstance(node, DictConfig) or name not in node:
            return merged, []
        del node[name]
        return result, [Layer(package=key, override=f"~{key}", deletes=True)]
    try:
        OmegaConf.update(result, key, value, merge=True, force_add=True)
    except (AssertionError, IndexError, ValueError, TypeError):
        return merged, []
    return result, [Layer(package=key, override=f"{key}={value}", value=value)]


def test_what_the_run_sets_itself_is_known(tmp_path: Path, composer: Composer) -> None:
    """Every field of TRL's config that differs from what trainer.args alone would make."""
    from trl import GRPOConfig

    from orchestrator.training.grpo import grpo_config

    run = resolve(composer.compose([EXPERIMENT]).raw)[0]
    ours, theirs = grpo_config(run, tmp_path), GRPOConfig(**run.trainer.args)
    names = set(trainer_fields("grpo")) - run.trainer.args.keys() - {"logging_dir"}
    differing = {name for name in names if str(getattr(ours, name)) != str(getattr(theirs, name))}
    assert differing <= set(SET_BY_RUN)


# --- what is printed -------------------------------------------------------------------------------------------------


def test_interpolations_are_followed_down_to_literals(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(["generation.max_model_len", EXPERIMENT], capsys).splitlines()
    assert out[0].startswith(
        "generation.max_model_len = 24  <- ${sum:${limits.prompt_length},${limits.completion_length}}  conf/generation/"
    )
    assert out[1].startswith("  limits.prompt_length = 16  <- conf/experiment/grpo_math.yaml:")
    assert out[2].startswith("      before: 512  conf/config.yaml:")
    assert out[3].startswith("  limits.completion_length = 8  <- conf/experiment/grpo_math.yaml:")


def test_the_override_wins_and_the_others_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = entry(["limits.generations", EXPERIMENT, "limits.generations=4"], capsys)
    assert (said["value"], said["place"]["kind"], said["place"]["text"]) == (4, "override", "limits.generations=4")
    assert [(Path(place["file"]).name, place["written"]) for place in said["before"]] == [
        ("grpo_math.yaml", 8),
        ("config.yaml", 8),
    ]


def test_a_whole_node_is_a_line_each_below_who_chose_it(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(["generation", EXPERIMENT], capsys).splitlines()
    assert out[0].startswith("generation: conf/generation/embedded.yaml, chosen by conf/experiment/grpo_math.yaml:")
    assert all(line.startswith("generation.") for line in out[1:])
    chosen = told(["data", EXPERIMENT, "data=jsonl"], capsys).splitlines()[0]
    assert chosen == "data: conf/data/jsonl.yaml, chosen by command line: data=jsonl"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["reward.functions.0.target"], "reward.functions.0.target = accuracy  <- conf/experiment/grpo_math.yaml:"),
        (["reward.functions[0].target"], "reward.functions.0.target = accuracy  <- conf/experiment/grpo_math.yaml:"),
        (["reward.functions.0.weight"], "weight = 1.0  <- schema default (orchestrator/schema.py:"),
        (["hardware.gpus"], "hardware.gpus = null  <- schema default (orchestrator/schema.py:"),
        (["trainer.args.epsilon"], "trainer.args.epsilon = 0.2  <- TRL's own default (GRPOConfig of trl "),
        (["trainer.args.output_dir"], "trainer.args.output_dir = (set by the run)  <- "),
        (["trainer.argv.1", "trainer=command", "trainer.argv=[a,b]"], "trainer.argv.1 = b  <- command line"),
        (["trainer.args.top_p", "trainer=command"], "trainer.args.top_p = null  <- not stated, so not compared"),
        (["trainer.args.top_k", "+trainer.args.top_k=5"], "= 5  <- command line: +trainer.args.top_k=5"),
        (["trainer.args.beta", "~trainer.args.beta"], "trainer.args.beta = 0.0  <- TRL's own default"),
        (["trainer.args.beta", "~trainer.args.beta"], "before: it is taken out  command line: ~trainer.args.beta"),
        (["generation.port"], "note: a free port, picked when the run starts"),
        (["data.path", "data=jsonl"], "data.path = ???  <- conf/data/jsonl.yaml:"),
        (["limts.x", "+limts.x=3"], "note: nothing reads it (CFG001)"),
        (["limits.generations", "limits.generations=many"], "note: it does not fit: int is asked for"),
        (["generation.model", "generation.model='${modle.name}'"], "modle.name = null  <- there is no such key"),
        (["seed", "seed='${data.seed}'"], "it refers to itself"),
        (["name", "name='${hydra:job.name}'"], "hydra:job.name = orchestrate  <- Hydra"),
    ],
)  # fmt: skip
def test_where_a_value_comes_from(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line in told([EXPERIMENT, *words], capsys)


def test_an_override_that_cannot_be_applied_is_no_origin(capsys: pytest.CaptureFixture[str]) -> None:
    said = entry(["reward.functions.0.name", EXPERIMENT, "reward.functions={name: x}"], capsys)
    assert (said["value"], Path(said["place"]["file"]).name) == ("accuracy", "grpo_math.yaml")
    assert "an override cannot be applied: reward.functions={name: x}" in said["notes"][0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["generatoin.port"], "the nearest key is generation.port"),
        (["trainer.args.learning_rat"], "the nearest key is trainer.args.learning_rate"),
        (["trainer.beta"], "the nearest key is trainer.args.beta"),
        (["reward.functions.7.target"], "reward.functions.0.target"),
        ([], "takes keys"),
        (["-m", "seed"], "one job"),
        (["seed", "limits.generations=1,2"], "-m"),
    ],
)
def test_what_cannot_be_asked_is_exit_code_64(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", EXPERIMENT, *words]) == 64
    assert says in capsys.readouterr().err


# --- recipes of the user's own ---------------------------------------------------------------------------------------


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def at_path(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return at_path


def test_a_folder_of_the_users_own(
    tmp_path: Path, write: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    group = write("generation/fat.yaml", "defaults: [embedded, _self_]\nmax_batch_rows: 9\n")
    write("hardware/box.yaml", "# @package hardware\ngpus: 8\n")
    experiment = write(
        "experiment/mine.yaml",
        "# @package _global_\n# yaml-language-server: $schema=recipe.json\n"
        "defaults:\n  - /hardware: box\n  - override /generation: fat\n"
        "common: &common {lr_scheduler_type: linear}\n"
        "trainer:\n  args:\n    <<: *common\n    max_steps: 3\n",
    )
    own = ["--config-dir", str(tmp_path), "+experiment=mine"]
    rows = entry(["generation.max_batch_rows", *own], capsys)
    assert (rows["value"], rows["place"]["file"], rows["place"]["line"]) == (9, str(group), 2)
    assert rows["before"][0]["written"] == 512
    assert f"generation: {group}, chosen by {experiment}:5" in told(["generation", *own], capsys)
    assert entry(["hardware.gpus", *own], capsys)["place"]["line"] == 2
    assert entry(["trainer.args.max_steps", *own], capsys)["place"]["line"] == 10
    assert entry(["trainer.args.lr_scheduler_type", *own], capsys)["place"]["line"] == 6


def test_the_order_of_the_defaults_list_decides(
    tmp_path: Path, write: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """`_self_` first: what the file itself says is said before what it includes."""
    write("generation/first.yaml", "defaults: [_self_, embedded]\nmax_batch_rows: 9\n")
    rows = entry(["generation.max_batch_rows", "--config-dir", str(tmp_path), "generation=first"], capsys)
    assert (rows["value"], Path(rows["place"]["file"]).name) == (512, "embedded.yaml")
    assert (rows["before"][0]["written"], Path(rows["before"][0]["file"]).name) == (9, "first.yaml")


def test_a_value_below_an_interpolated_mapping(
    tmp_path: Path, write: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write("experiment/mine.yaml", "# @package _global_\nshared: {A: '1'}\nreward:\n  env: ${shared}\n")
    said = entry(["reward.env.A", "--config-dir", str(tmp_path), "+experiment=mine"], capsys)
    assert (said["value"], said["place"]["at"], said["place"]["written"]) == ("1", "reward.env", "${shared}")
    assert (said["needs"][0]["key"], said["needs"][0]["place"]["line"]) == ("shared.A", 2)


# --- what is not printed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides",
    [
        ["+reward.env.HF_TOKEN=hunter2"],
        ["reward.env={HF_TOKEN: hunter2}"],
        ["+reward.env.HF_TOKEN=${oc.env:MY_SECRET}"],
        ["+reward.env.HF_TOKEN=${oc.env:MY_NAME}"],
        ["+reward.env.HF_TOKEN=${data.prompt}", "data.prompt=hunter2"],
        ["+reward.env.HF_TOKEN=${oc.env:NOT_THERE_SECRET,hunter2}"],
        ["+reward.env.HF_TOKEN=hunter2", "reward.env.HF_TOKEN=hunter22"],
        ["reward.url='http://x/?key=${oc.env:MY_SECRET}'"],
        ["reward.url=http://me:hunter2@host:80"],
        ["+trainer.args.hub_token=hunter2"],
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_secrets_are_named_and_not_shown(
    overrides: list[str], form: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2")
    monkeypatch.setenv("MY_NAME", "hunter2")
    keys = ["reward", "trainer.args", "reward.url", *(["reward.env.HF_TOKEN"] if "HF_TOKEN" in overrides[0] else [])]
    out = told([EXPERIMENT, *overrides, *keys, *form], capsys)
    assert "hunter2" not in out
    assert "(not shown)" in out


def test_variables_that_are_no_secret_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_NAME", "alice")
    out = told([EXPERIMENT, "name", "name=${oc.env:MY_NAME}"], capsys).splitlines()
    assert out[0] == "name = alice  <- ${oc.env:MY_NAME}  command line: name=${oc.env:MY_NAME}"
    assert "  $MY_NAME = alice  <- environment variable" in out


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("${sum:${limits.a},${limits.b}}", ["limits.a", "limits.b"]),
        ("http://${.host}:${..ports[0]}", ["generation.host", "ports.0"]),
        ("${a.${b}.c}", ["a.B.c", "b"]),
        ("${oc.select:a.b,3}", ["a.b"]),
        ("${oc.decode:${oc.env:X}}", ["X"]),
        ("${now:%Y-%m}", ["now:%Y-%m"]),
        (["${a}", {"x": "${b}"}], ["a", "b"]),
        (r"\${x}", []),
        ("${", []),
    ],
)
def test_what_an_interpolation_refers_to(text: Any, names: list[str]) -> None:
    found = references(text, "generation.url", lambda inside: inside.replace("${b}", "B"))
    assert [reference.name for reference in found] == names
