"""Alarms of real runs: training that teaches nothing, and servers that stop answering."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.orchestrated import SMALL, orchestrate, processes_of, read, run_dirs, started, wait_for

pytestmark = pytest.mark.e2e

TWO_DIGITS = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5, 25) for b in range(5, 25)]
CLIPPED = (
    *SMALL,
    # Every answer has two digits, and one token is one digit: all are cut, and none is right.
    "data=jsonl", "data.path=rows.jsonl", "data.rows=null", "data.columns={answer: answer}", "evaluation.rows=0",
    "limits.completion_length=1", "trainer.args.max_steps=8", "supervision.alarms.patience_steps=4",
)  # fmt: skip


def write_rows(folder: Path) -> None:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TWO_DIGITS))


def test_clipped_completions_stop_a_run_that_says_so(tmp_path: Path) -> None:
    write_rows(tmp_path)
    done = orchestrate(*CLIPPED, "trainer.args.max_steps=2000", "supervision.alarms.action=stop", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    assert "failed: trainer: RUN001 completions-clipped" in done.stderr
    assert "clipped ratio 1.00 for 4 steps; limits.completion_length = 1" in done.stderr
    assert "limits.completion_length=2" in done.stderr
    assert str(run_dir / "logs" / "trainer.log") in done.stderr
    result = read(run_dir / "result.json")
    assert (result["code"], result["failed"]) == (1, "trainer")
    assert [(one["code"], one["first_step"]) for one in result["alarms"]] == [("RUN001", 4), ("RUN002", 4)]
    assert processes_of(run_dir) == []


def test_as_warnings_they_are_shown_once_and_listed(tmp_path: Path) -> None:
    write_rows(tmp_path)
    done = orchestrate(*CLIPPED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path)
    assert done.stderr.count("alarm RUN001") == done.stderr.count("alarm RUN002") == 1
    assert "mean reward 0" in done.stderr
    listed = [(a["code"], a["action"], a["first_step"], a["last_step"], a["count"]) for a in _alarms(run_dir)]
    assert listed == [("RUN001", "warn", 4, 8, 1), ("RUN002", "warn", 4, 8, 1)]
    written = [json.loads(line)["code"] for line in (run_dir / "alarms.jsonl").read_text().splitlines()]
    assert written == ["RUN001", "RUN002"]
    assert "RUN002 no-reward-spread, trainer, steps 4 to 8" in done.stdout


def test_a_group_that_no_function_scores_is_noticed_at_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def score(prompts, completions, answer, **kwargs):\n"
        "    return [None if int(a) % 2 else 1.0 * len(str(c)) for a, c in zip(answer, completions)]\n"
    )
    mine = ("reward.functions.0.target=mine.py:score", "reward.on_error=mask", "evaluation.rows=0")
    done = orchestrate(*SMALL, *mine, "supervision.alarms.actions={RUN003: stop}", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "RUN003 group-without-reward: in step " in done.stderr
    assert "of the groups have no reward at all" in done.stderr


@pytest.mark.parametrize("name", ["reward", "generation"])
def test_a_server_that_stops_answering_ends_the_run_and_is_named(tmp_path: Path, name: str) -> None:
    run_dir, code, stderr = _wedge(tmp_path, name, "supervision.alarms.action=stop")
    assert code == 1, stderr
    assert f"failed: {name}: RUN005 service-silent: it has not answered for" in stderr
    assert "although its process lives (no answer within 2 s)" in stderr
    assert str(run_dir / "logs" / f"{name}.log") in stderr
    assert processes_of(run_dir) == []


def test_a_trainer_that_waits_for_ever_is_stalled(tmp_path: Path) -> None:
    """With the silence itself switched off: the stall says what the trainer was doing."""
    run_dir, code, stderr = _wedge(tmp_path, "reward", "supervision.alarms.actions={RUN004: stop, RUN005: off}")
    assert code == 1, stderr
    assert "failed: trainer: RUN004 stalled: the scoring (after step " in stderr
    assert "supervision.alarms.stall_s = 10" in stderr
    assert str(run_dir / "logs" / "trainer.log") in stderr
    assert [(one["code"], one["count"]) for one in _alarms(run_dir)] == [("RUN004", 1)]
    assert processes_of(run_dir) == []


def _wedge(cwd: Path, name: str, *words: str) -> tuple[Path, int, str]:
    """A run whose server is halted while it trains: it holds its port, takes requests and never answers."""
    patient = ("trainer.args.max_steps=5000", "supervision.alarms.stall_s=10")
    process = started(*SMALL, *patient, *words, cwd=cwd)
    wait_for("training", lambda: any((d / "metrics.jsonl").is_file() for d in run_dirs(cwd)), 90)
    (run_dir,) = run_dirs(cwd)
    os.kill(next(p["pid"] for p in read(run_dir / "processes.json")["processes"] if p["name"] == name), signal.SIGSTOP)
    _, stderr = process.communicate(timeout=60)
    return run_dir, process.returncode, stderr


def _alarms(run_dir: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = read(run_dir / "result.json")["alarms"]
    return found
