"""Prompt lengths that are counted once: what names a count, and what a damaged cache does."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.compose import Composer
from orchestrator.data import DataFacts
from orchestrator.facts import ModelFacts, gather, prompt_tokens
from orchestrator.resolve import resolve
from orchestrator.schema import RunConfig


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "orchestrate" / "prompt_tokens"


def recipe(*overrides: str) -> RunConfig:
    return resolve(Composer().compose(["+experiment=grpo_math", "data.rows=20", *overrides]).raw)[0]


@pytest.fixture
def run() -> RunConfig:
    return recipe()


def looked_at(run: RunConfig) -> tuple[DataFacts, ModelFacts]:
    facts = gather(run)
    model = facts.models[run.model.name]
    assert not isinstance(facts.data, str)
    assert not isinstance(model, str)
    return facts.data, model


def test_a_count_is_found_by_every_later_check(run: RunConfig) -> None:
    assert gather(run).prompt_tokens == "not counted"
    prompt_tokens.write(run, *looked_at(run), Counter([9, 9, 10, *[8] * 17]))
    assert gather(run).prompt_tokens == {8: 17, 9: 2, 10: 1}


@pytest.mark.parametrize(
    "other",
    [
        ["data.seed=5"],
        ["data.rows=21"],
        ["data.chat=false"],
        ["trainer.args.chat_template_kwargs={enable_thinking: false}"],
        ["model.add_tokens=[x]"],
    ],
)
def test_a_count_of_something_else_is_not_used(run: RunConfig, other: list[str]) -> None:
    prompt_tokens.write(run, *looked_at(run), {9: 20})
    assert gather(recipe(*other)).prompt_tokens == "not counted"


@pytest.mark.parametrize("other", [["limits.prompt_length=4"], ["trainer.args.learning_rate=1e-5"], ["seed=0"]])
def test_what_changes_no_length_finds_the_same_count(run: RunConfig, other: list[str]) -> None:
    prompt_tokens.write(run, *looked_at(run), {9: 20})
    assert gather(recipe(*other)).prompt_tokens == {9: 20}


def test_another_tokenizer_or_template_has_another_key(run: RunConfig) -> None:
    data, model = looked_at(run)
    assert prompt_tokens.key(run, data, model) != prompt_tokens.key(run, data, replace(model, prompt_files_sha256="x"))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"nine": 20}', '{"9": "20"}', '{"9": 19}', '{"9": true}'])
def test_a_damaged_file_is_not_counted_and_says_so(run: RunConfig, cache: Path, content: str) -> None:
    prompt_tokens.write(run, *looked_at(run), {9: 20})
    (file,) = cache.iterdir()
    file.write_text(content)
    assert str(gather(run).prompt_tokens).startswith(f"not counted: {file} cannot be used")


def test_what_is_missing_is_said(run: RunConfig) -> None:
    data, model = looked_at(run)
    assert prompt_tokens.read(run, "no rows", model) == "the rows or the model's files cannot be read"
    bare = replace(model, prompt_files_sha256=None)
    assert prompt_tokens.read(run, data, bare) == f"{model.path} holds no tokenizer"
    prompt_tokens.write(run, data, bare, {9: 20})
    assert prompt_tokens.read(run, data, model) == "not counted"


def test_a_cache_that_cannot_be_written(run: RunConfig, cache: Path) -> None:
    data, model = looked_at(run)
    cache.parent.mkdir()
    cache.touch()
    with pytest.raises(OSError, match="exists"):
        prompt_tokens.write(run, data, model, {9: 20})


def test_a_write_leaves_one_whole_file(run: RunConfig, cache: Path) -> None:
    for _ in range(3):
        prompt_tokens.write(run, *looked_at(run), {9: 20})
    assert [path.suffix for path in cache.iterdir()] == [".json"]


def test_a_run_remembers_what_it_counts(run: RunConfig, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    from orchestrator.data.recipe import training_rows
    from orchestrator.training.grpo import load_tokenizer
    from orchestrator.training.prompts import prompt_lengths, remember_lengths

    rows = training_rows(run)
    lengths = prompt_lengths(load_tokenizer(run), rows, "training")
    remember_lengths(run, rows, lengths)
    assert gather(run).prompt_tokens == Counter(lengths)
    for file in cache.iterdir():
        file.unlink()
    cache.rmdir()
    cache.touch()
    remember_lengths(run, rows, lengths)
    assert "not remembered" in caplog.text
