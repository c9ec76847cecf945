"""Signals, kills and strangers: whatever happens to a run, it says so and leaves nothing behind."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.orchestrated import ORCHESTRATE, SMALL, orchestrate, processes_of, read, run_dirs, started, wait_for

pytestmark = pytest.mark.e2e


def _phase(run_dir: Path) -> str:
    if (run_dir / "metrics.jsonl").is_file():
        return "training"
    return "starting" if (run_dir / "processes.json").is_file() else "before"


@pytest.mark.parametrize("phase", ["starting", "training"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_everything(tmp_path: Path, phase: str, number: signal.Signals, code: int) -> None:
    process = started(*SMALL, "trainer.args.max_steps=2000", cwd=tmp_path)
    wait_for(phase, lambda: any(_phase(d) == phase for d in run_dirs(tmp_path)) or process.poll() is not None, 90)
    (run_dir,) = run_dirs(tmp_path)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=5)
    assert process.returncode == code, stderr
    assert processes_of(run_dir) == []


def test_a_killed_orchestrator_leaves_nothing(tmp_path: Path) -> None:
    process = started(*SMALL, "trainer.args.max_steps=2000", cwd=tmp_path)
    wait_for(
        "training", lambda: any(_phase(d) == "training" for d in run_dirs(tmp_path)) or process.poll() is not None, 90
    )
    (run_dir,) = run_dirs(tmp_path)
    assert len(processes_of(run_dir)) >= 4  # reward server and its worker, generation server, trainer
    process.kill()
    wait_for("every process of the run is gone", lambda: processes_of(run_dir) == [], 5)
    process.communicate()


def test_two_runs_of_one_second_both_succeed(tmp_path: Path) -> None:
    pair = [started(*SMALL, cwd=tmp_path) for _ in range(2)]
    ended = [process.communicate(timeout=280) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], ended
    assert len(run_dirs(tmp_path)) == 2


@contextmanager
def stranger(port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(
            "the stranger listens",
            lambda: any(c.laddr.port == port for c in psutil.Process(process.pid).net_connections()),
        )
        yield process
    finally:
        process.kill()
        process.wait(5)


def test_a_strangers_server_is_named_and_left_alone(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with stranger(port) as process:
        done = orchestrate(*SMALL, f"generation.port={port}", cwd=tmp_path, timeout_s=20)
        assert done.returncode == 2
        assert f"pid {process.pid}" in done.stderr
        assert "http.server" in done.stderr
        assert process.poll() is None
    assert run_dirs(tmp_path) == []


def test_a_killed_trainer_fails_the_run_and_is_named(tmp_path: Path) -> None:
    process = started(*SMALL, "trainer.args.max_steps=2000", cwd=tmp_path)
    wait_for("training", lambda: any(_phase(d) == "training" for d in run_dirs(tmp_path)), 90)
    (run_dir,) = run_dirs(tmp_path)
    psutil.Process(_pid_of(run_dir, "trainer")).kill()
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "failed: trainer" in stderr
    assert str(run_dir / "logs" / "trainer.log") in stderr
    assert processes_of(run_dir) == []


def test_a_reward_server_that_dies_is_started_again_when_asked_for(tmp_path: Path) -> None:
    process = started(*SMALL, "trainer.args.max_steps=60", "supervision.restarts=1", cwd=tmp_path)
    wait_for("training", lambda: any(_phase(d) == "training" for d in run_dirs(tmp_path)), 90)
    (run_dir,) = run_dirs(tmp_path)
    psutil.Process(_pid_of(run_dir, "reward")).kill()
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "reward restart" in stderr
    # The new server cannot know what the old one scored: not compared, and shown as unknown.
    assert read(run_dir / "result.json")["counts"]["samples_scored"] is None
    assert "samples_scored by nobody" in stdout


def _pid_of(run_dir: Path, name: str) -> int:
    return int(next(p["pid"] for p in read(run_dir / "processes.json")["processes"] if p["name"] == name))


def test_a_run_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = orchestrate(*SMALL, "runs_dir=taken", cwd=tmp_path, timeout_s=20)
    assert done.returncode == 1
    assert "runs_dir = taken" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_ends_neither_the_run_nor_its_exit_code(tmp_path: Path) -> None:
    words = " ".join([str(ORCHESTRATE), *SMALL])
    done = subprocess.run(["bash", "-c", f"{words} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}"], cwd=tmp_path, timeout=120)
    assert done.returncode == 0
    assert read(run_dirs(tmp_path)[0] / "result.json")["code"] == 0
