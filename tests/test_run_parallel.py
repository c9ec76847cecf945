"""Real runs side by side: ports, directories and GPUs of their own, and nothing that outlives the sweep."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.orchestrated import SMALL, orchestrate, processes_of, read, run_dirs, started, wait_for

pytestmark = pytest.mark.e2e


def saved(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read(sweep_dir(folder) / "sweep.json")
    return rows


def sweep_dir(cwd: Path) -> Path:
    (folder,) = (cwd / "runs" / "grpo_math" / "sweeps").glob("*")
    return Path(folder)


def test_three_jobs_two_at_once_one_of_which_fails(tmp_path: Path) -> None:
    secret = ("trainer.env.MY_TOKEN=sesame", "ignore.SEC003=it opens nothing")
    # bf16 without use_cpu is refused by TRL where there is no GPU.
    swept = (*SMALL, *secret, "trainer.args.bf16=false,true,false", "evaluation.rows=0", "sweep.parallel=2")
    done = orchestrate("-m", *swept, cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 1, done.stderr
    rows = saved(tmp_path)
    assert [row["code"] for row in rows] == [0, 1, 0]
    assert [row["result"]["counts"]["samples_scored"] for row in (rows[0], rows[2])] == [48, 48]
    folders = [Path(row["run_dir"]) for row in rows]
    assert sorted(folders) == [folder.resolve() for folder in run_dirs(tmp_path)]
    for row, folder in zip(rows, folders, strict=True):
        shown = [override.replace("sesame", "(not shown)") for override in read(folder / "lock.json")["overrides"]]
        assert shown == row["overrides"]
    plans = [read(folder / "plan.json")["steps"] for folder in folders]
    ports = [{step["port"] for step in plan if step["port"]} for plan in plans]
    assert not ports[0] & ports[1]
    told = done.stderr.splitlines()
    assert [line.split()[1] for line in told if " starts: " in line] == ["0", "1", "2"]
    assert next(i for i, line in enumerate(told) if "job 2 starts" in line) > 2
    assert "job 1 ended with code 1: trainer: exited with code 1" in done.stderr
    assert "use_cpu" in (sweep_dir(tmp_path) / "logs" / "1.log").read_text()
    everything = done.stdout + done.stderr
    everything += "".join(path.read_text() for path in sweep_dir(tmp_path).rglob("*") if path.is_file())
    assert "sesame" not in everything
    assert processes_of(sweep_dir(tmp_path)) == []


def test_what_a_job_starts_sees_the_jobs_gpus_only(tmp_path: Path) -> None:
    """Two GPUs that are not there: what is real is who waits, and what the processes find in their environment."""
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "def score(prompts, completions, **kwargs):\n"
        "    with open('saw', 'a') as file: file.write(os.environ['CUDA_VISIBLE_DEVICES'] + '\\n')\n"
        "    return [0.0 for _ in completions]\n"
    )
    function = "reward.functions=[{name: mine, target: 'mine.py:score'}]"
    short = ("trainer.args.max_steps=1", "evaluation.rows=0", "hardware.gpus=2", function)
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    words = ("-m", *SMALL, *short, "seed=1,2,3", "sweep.parallel=3")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator", *words],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = [read(Path(row["run_dir"]) / "lock.json")["hardware"]["cuda_visible_devices"] for row in saved(tmp_path)]
    assert seen[:2] == ["0", "1"]
    assert sorted(set((tmp_path / "saw").read_text().splitlines())) == ["0", "1"]
    told = done.stderr
    assert f"job 2 starts on GPU {seen[2]}" in told
    assert told.index(f"job {seen[2]} ok") < told.index("job 2 starts")


LONG = ("-m", *SMALL, "trainer.args.max_steps=2000", "sweep.parallel=2")


def training(cwd: Path, process: "subprocess.Popen[str]", count: int) -> list[Path]:
    """The run directories, once that many jobs train."""

    def there() -> list[Path]:
        return [folder for folder in run_dirs(cwd) if (folder / "metrics.jsonl").is_file()]

    wait_for(f"{count} jobs train", lambda: len(there()) == count or process.poll() is not None, 120)
    assert process.poll() is None
    return there()


def left(cwd: Path) -> list[psutil.Process]:
    return [process for folder in (sweep_dir(cwd), *run_dirs(cwd)) for process in processes_of(folder)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_leaves_nothing_of_any_job(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = started(*LONG, "seed=1,2,3", cwd=tmp_path)
    training(tmp_path, process, 2)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == code, stderr
    assert left(tmp_path) == []
    rows = saved(tmp_path)
    assert [row["code"] for row in rows] == [code, code, None]
    assert [read(folder / "result.json")["reason"] for folder in run_dirs(tmp_path)] == [
        f"stopped by {number.name}"
    ] * 2


def test_kill_9_of_the_sweep_leaves_nothing_of_any_job(tmp_path: Path) -> None:
    process = started(*LONG, "seed=1,2", cwd=tmp_path)
    training(tmp_path, process, 2)
    assert len(left(tmp_path)) >= 2 * 5  # each an orchestrator, a guardian, two services, a trainer
    process.kill()
    began = time.monotonic()
    wait_for("everything is gone", lambda: left(tmp_path) == [], 10)
    print(f"kill -9 of the sweep: gone after {time.monotonic() - began:.2f} s")
    process.communicate()


def test_gpus_of_a_killed_job_are_free_when_its_services_are_gone(tmp_path: Path) -> None:
    process = started(*LONG, "seed=1,2", "hardware.gpus=1", cwd=tmp_path)
    (first,) = training(tmp_path, process, 1)
    psutil.Process(read(first / "processes.json")["owner"][0]).kill()
    wait_for("the second one starts", lambda: len(run_dirs(tmp_path)) == 2, 30)
    assert processes_of(first) == []
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 143, stderr
    assert "job 0 ended with code 1: ended by SIGKILL" in stderr
    assert left(tmp_path) == []
