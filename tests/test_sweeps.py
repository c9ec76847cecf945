"""Sweeps: all checked before anything starts, findings by cause, what starts and what does not, the exit code."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from orchestrator import sweep as sweep_module
from orchestrator.cli import main
from orchestrator.compose import Composer
from orchestrator.exits import FINDINGS, OK, RUN_FAILED, SERVICE_FAILED, SIGNALLED
from orchestrator.jobs import JobResult, check_job, checked_jobs
from orchestrator.request import requested
from tests.orchestrated import SMALL, orchestrate, read, run_dirs

EXPERIMENT = "+experiment=grpo_math"
PLUGINS = {"PYTHONPATH": str(Path(__file__).parent / "plugins")}
"""A sweeper and a launcher of a few lines, found as Hydra finds every plugin."""


def test_a_combinations_findings_are_those_of_a_single_check() -> None:
    """Groups, values, a seed that decides the rows, errors of several rules: what one job looks up serves others."""
    swept = [
        EXPERIMENT, "seed=1,2", "limits.generations=8,7", "reward=local,inprocess", "generation=embedded,colocate",
        "trainer.args.betta=1,2", "evaluation.rows=100,101", "model.name=${shipped:tiny_math},/nowhere", "~trainer.env",
    ]  # fmt: skip
    request = requested(Composer(), swept, multirun=True)
    jobs = checked_jobs(Composer(), request.jobs)
    assert len(jobs) == 2**7
    for number in random.Random(0).sample(range(len(jobs)), 8):
        assert jobs[number].findings == check_job(Composer(), request.jobs[number]).findings, request.jobs[number]


def test_findings_are_grouped_by_cause_and_name_their_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "-m", EXPERIMENT, "limits.generations=8,7,9", "trainer.args.beta=0.0,0.1"]
    assert main(words) == 2
    text = capsys.readouterr().out
    assert text.count("error[NUM001]") == 1
    assert "in the 2 jobs with limits.generations=7: 2-3" in text
    assert "limits.generations = 9" in text
    assert "6 jobs: 4 with errors" in text
    assert main([*words, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [(finding["cause"], finding["jobs"]) for finding in document["findings"]] == [(0, [2, 3]), (0, [4, 5])]
    assert document["jobs"][5]["differs"] == ["limits.generations=9", "trainer.args.beta=0.1"]
    assert [job["ok"] for job in document["jobs"]] == [True, True, False, False, False, False]
    assert document["counts"]["error"] == 4


@pytest.mark.parametrize(
    ("swept", "says"),
    [
        (["seed=1,2", "generaton.port=1"], "in every job"),
        (["seed=1,-1"], "in job 1 (seed=-1)"),
        (["model.dtype=float32,float8", "model.name=a,b"], "in the 2 jobs with model.dtype=float8: 2-3"),
    ],
)
def test_how_jobs_are_named(swept: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-m", EXPERIMENT, *swept]) == 2
    assert says in capsys.readouterr().out


def test_jobs_that_do_not_compose_are_all_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-m", EXPERIMENT, "reward=local,lokal,inproc"]) == 2
    said = capsys.readouterr().err
    assert "job 1 (+experiment=grpo_math reward=lokal)" in said
    assert "job 2 (+experiment=grpo_math reward=inproc)" in said


Started = list[tuple[str, ...]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    """The jobs that Hydra has started, in place of running them. Seed 5 fails, 6 meets a service that disagrees."""
    jobs: Started = []

    def run_job(raw: Any, overrides: tuple[str, ...]) -> JobResult:
        jobs.append(tuple(override for override in overrides if override != EXPERIMENT))
        code = {5: RUN_FAILED, 6: SERVICE_FAILED, 7: SIGNALLED + 15}.get(raw.seed, OK)
        return JobResult(code=code, run_dir=tmp_path, result={"last_reward": 0.5}, reason=f"seed {raw.seed}")

    monkeypatch.setattr(sweep_module, "run_job", run_job)
    monkeypatch.chdir(tmp_path)
    return jobs


def saved(folder: Path) -> list[dict[str, Any]]:
    (path,) = (folder / "runs" / "grpo_math" / "sweeps").glob("*/sweep.json")
    rows: list[dict[str, Any]] = read(path)
    return rows


def test_nothing_starts_when_one_job_has_an_error(started: Started, tmp_path: Path, capsys: Any) -> None:
    assert main(["-m", EXPERIMENT, "limits.generations=8,7,4"]) == 2
    assert started == []
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().err
    assert "1 of 3 jobs cannot start (1): nothing starts" in said
    assert "sweep.keep_going=true" in said


def test_with_keep_going_the_good_jobs_start(started: Started, tmp_path: Path, capsys: Any) -> None:
    words = ["-m", EXPERIMENT, "limits.generations=8,7,4", "sweep.keep_going=true"]
    assert main(words) == 2
    assert [job[0] for job in started] == ["limits.generations=8", "limits.generations=4"]
    rows = saved(tmp_path)
    assert [(row["code"], row["not_started"]) for row in rows] == [(0, None), (2, "NUM001"), (0, None)]
    assert "not run: NUM001" in capsys.readouterr().out
    assert main([*words, "limits.generations=7,9"]) == 2  # the last one counts: none is good
    assert len(started) == 2


@pytest.mark.parametrize(
    ("seeds", "code", "ran"),
    [
        ("1,2", 0, 2),
        ("1,5", 1, 2),
        ("5,6,1", 3, 3),
        ("-1,5", 1, 1),
        ("-1,6,5", 3, 2),
        ("-1,1", 2, 1),
        ("6,7,1", 143, 2),
    ],
)
def test_a_sweep_exits_with_the_worst_of_its_jobs(
    started: Started, tmp_path: Path, seeds: str, code: int, ran: int
) -> None:
    assert main(["-m", EXPERIMENT, f"seed={seeds}", "sweep.keep_going=true"]) == code
    assert len(started) == ran
    rows = saved(tmp_path)
    assert len(rows) == len(seeds.split(","))
    if code == 143:
        assert rows[-1]["not_started"] == "the sweep ended first"


def test_one_job_exits_with_its_own_code(started: Started) -> None:
    assert [main([EXPERIMENT, f"seed={seed}"]) for seed in (1, 5, 6, 7, -1)] == [0, 1, 3, 143, 2]


def test_what_a_recipe_sweeps_is_launched_as_it_was_checked(started: Started, tmp_path: Path) -> None:
    """`hydra.sweeper.params` with a key that no YAML mentions, which Hydra alone refuses; values drawn by `shuffle`."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "swept.yaml").write_text(
        "# @package _global_\ndefaults: [grpo_math, _self_]\n"
        "hydra: {mode: MULTIRUN, sweeper: {max_batch_size: 2, params: {trainer.args.top_k: '5,6'}}}\n"
    )
    assert main(["--config-dir", str(tmp_path), "+experiment=swept", "seed=shuffle(range(10,14))"]) == 0
    assert len(started) == len(set(started)) == 8
    assert [row["overrides"] for row in saved(tmp_path)] == [list(job) for job in started]


def test_a_plugins_jobs_are_not_known_beforehand(tmp_path: Path) -> None:
    words = ("-m", EXPERIMENT, "hydra/sweeper=tiny", "seed=interval(0,1)")
    done = orchestrate("check", *words, cwd=tmp_path, env=PLUGINS)
    assert done.returncode == 0, done.stderr
    assert "not known beforehand" in done.stderr
    broken = orchestrate("check", "--json", *words, "generaton.port=1", cwd=tmp_path, env=PLUGINS)
    assert broken.returncode == 2
    document = json.loads(broken.stdout)
    assert (document["sweeper"], len(document["jobs"])) == ("tiny", 1)
    assert list(tmp_path.iterdir()) == []


def test_launchers_that_leave_the_process_are_refused(tmp_path: Path) -> None:
    done = orchestrate("-m", EXPERIMENT, "hydra/launcher=elsewhere", "seed=1,2", cwd=tmp_path, env=PLUGINS)
    assert done.returncode == 64
    assert "hydra/launcher=elsewhere" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.e2e
def test_a_plugins_jobs_are_checked_as_they_come(tmp_path: Path) -> None:
    accepted = ("trainer.env.MY_TOKEN=sesame", "ignore.SEC003=it opens nothing")
    settings = [*SMALL, "trainer.args.max_steps=1", "evaluation.rows=0", "hydra/sweeper=tiny", *accepted]
    tried = "hydra.sweeper.tries=['limits.generations=7','limits.generations=8']"
    done = orchestrate("-m", *settings, tried, cwd=tmp_path, env=PLUGINS)
    assert done.returncode == 2, done.stderr
    assert done.stderr.index("not known beforehand") < done.stderr.index("job 0: limits.generations=7")
    assert "error[NUM001]" in done.stderr
    assert [(row["code"], row["not_started"]) for row in saved(tmp_path)] == [(FINDINGS, "NUM001"), (OK, None)]
    assert "sesame" not in done.stdout + done.stderr + json.dumps(saved(tmp_path))
    (run_dir,) = run_dirs(tmp_path)
    found = read(run_dir / "findings.json")
    kept = [finding for finding in found["findings"] if finding["severity"] != "note"]  # one step has no warm-up
    assert [(finding["code"], finding["ignored"]) for finding in kept] == [("SEC003", "it opens nothing")]
    assert (found["version"], found["ok"], found["jobs"][0]["starts"]) == (1, True, True)
    assert "the sweeper was told: failed, a number" in done.stdout
