"""The command line: exit codes, output for people and machines, and that a check writes nothing and stays light."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.cli import main, parse
from tests.orchestrated import ORCHESTRATE, orchestrate

EXPERIMENT = "+experiment=grpo_math"


def test_a_shipped_recipe_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", EXPERIMENT]) == 0
    assert "ok: the parts agree" in capsys.readouterr().out


def test_findings_are_exit_code_two_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", EXPERIMENT, "limits.generations=7"]) == 2
    out = capsys.readouterr().out
    assert "error[NUM001]" in out
    assert "fix:" in out


@pytest.mark.parametrize("words", [["check", EXPERIMENT, "--json"], [EXPERIMENT, "dry_run=true", "--json"]])
def test_check_and_dry_run_are_one_thing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "generation.model=/other", "generaton.port=1"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [finding["code"] for finding in report["findings"]] == ["CFG001", "MOD001"]


def test_the_plan_names_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", EXPERIMENT, "--json", "generation.port=8123"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [step["name"] for step in plan["steps"]] == ["reward", "generation", "trainer", "counts"]
    assert plan["steps"][2]["after"] == ["reward", "generation"]
    assert "8123" in plan["steps"][1]["argv"]
    assert plan["steps"][1]["ready"]["url"] == "http://127.0.0.1:8123/health"


def test_rules_and_one_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    assert "NUM001" in capsys.readouterr().out
    assert main(["rules", "num001"]) == 0
    assert "## Bad" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nonsense"], "--nonsense"),
        (["chekc", EXPERIMENT], "did you mean check"),
        (["plan", "-m", EXPERIMENT, "seed=1,2"], "one job"),
        (["rules", "NUM999"], "NUM"),
        (["resume", "nowhere"], "recipe.yaml"),
        (["check", EXPERIMENT, "=5"], "="),
        (["check", EXPERIMENT, "seed=1,2"], "-m"),
        (["check", "--config-dir", "/nowhere", EXPERIMENT], "/nowhere"),
    ],
)
def test_a_wrong_command_line_is_exit_code_64(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 64
    assert says in capsys.readouterr().err


def test_an_unknown_experiment_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "+experiment=nope"]) == 2
    assert "grpo_math" in capsys.readouterr().err


def test_help_and_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "shipped experiments: " in capsys.readouterr().out
    assert parse(["-m", "a=1", "--config-dir=x"]).config_dir == "x"


def test_a_check_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "checked_jobs", interrupted)
    assert main(["check", EXPERIMENT]) == 130


@pytest.mark.parametrize("words", [["check", EXPERIMENT], ["plan", EXPERIMENT], ["--help"]])
def test_check_plan_and_help_import_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(ORCHESTRATE), *words], cwd=tmp_path, capture_output=True, text=True
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert done.returncode == 0
    assert loaded & {"torch", "transformers", "trl", "vllm", "datasets", "accelerate"} == set()
    assert "orchestrator" in loaded


def test_a_users_package_on_pythonpath_is_named_and_not_imported(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("raise RuntimeError('imported')\n")
    done = orchestrate("check", EXPERIMENT, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 64
    assert str(tmp_path / "rewards.py") in done.stderr
    assert "imported" not in done.stderr


@pytest.mark.parametrize(
    ("recipe", "says"),
    [("a: [b", "line 1"), ("name: x\ndefaults: [grpo_math]\n", "# @package _global_")],
    ids=["broken YAML", "no package line"],
)
def test_a_recipe_that_cannot_be_meant(
    tmp_path: Path, recipe: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(recipe)
    assert main(["check", "--config-dir", str(tmp_path), "+experiment=mine"]) == 2
    printed = capsys.readouterr()
    assert says in printed.out + printed.err
