"""Jobs of a sweep side by side, with programs in the place of the jobs: shares, failures, signals, exit codes."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator import parallel
from orchestrator import sweep as sweep_module
from orchestrator.cli import main
from orchestrator.compose import Composer
from orchestrator.exits import OK
from orchestrator.jobs import JobResult
from orchestrator.request import sweep_folder
from orchestrator.resolve import settled, with_defaults
from tests.orchestrated import orchestrate, processes_of, read, wait_for

EXPERIMENT = "+experiment=grpo_math"
PLUGINS = {"PYTHONPATH": str(Path(__file__).parent / "plugins")}
PROGRAM = """\
import json, os, signal, subprocess, sys, time
told = json.loads(os.environ["ORCHESTRATE_JOB"])
seed = next(int(o.partition("=")[2]) for o in told["overrides"] if o.startswith("seed="))
with open("saw.jsonl", "a") as file:
    file.write(json.dumps([seed, told["share"]]) + "\\n")
if seed == 10:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); time.sleep(60)"
    left = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, start_new_session=True)
    left.stdout.readline()
    open("left", "w").write(str(left.pid))
if seed == 11:
    stat = "/proc/" + open("left").read() + "/stat"
    assert not os.path.exists(stat) or open(stat).read().rpartition(")")[2].split()[0] in "ZX"
if seed in (9, 10):
    os.kill(os.getpid(), signal.SIGKILL)
if seed == 8:
    sys.exit("no such luck")
if seed >= 20:
    signal.signal(signal.SIGINT, signal.SIG_IGN if seed == 21 else signal.SIG_DFL)
    print("stays", flush=True)
    time.sleep(60)
code = {5: 1, 6: 3, 7: 143}.get(seed, 0)
with open(told["outcome"], "w") as file:
    json.dump({"code": code, "run_dir": "", "result": {"last_reward": 0.5}, "reason": f"seed {seed}"}, file)
sys.exit(code)
"""


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setattr(
        parallel, "module_argv", lambda interpreter, module: (interpreter, str(tmp_path / "program.py"))
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(folder: Path) -> list[dict[str, Any]]:
    (path,) = (folder / "runs" / "grpo_math" / "sweeps").glob("*/sweep.json")
    rows: list[dict[str, Any]] = read(path)
    return rows


@pytest.mark.parametrize(
    ("seeds", "codes", "code"),
    [("1,2,3", [0, 0, 0], 0), ("1,5,6,2", [0, 1, 3, 0], 3), ("1,-1,5", [0, 2, 1], 1), ("7,1,2", [143, 0, 0], 143)],
)
def test_a_job_that_fails_stops_no_other(programs: Path, seeds: str, codes: list[int], code: int, capsys: Any) -> None:
    assert main(["-m", EXPERIMENT, f"seed={seeds}", "sweep.parallel=2", "sweep.keep_going=true"]) == code
    assert [row["code"] for row in saved(programs)] == codes
    said = capsys.readouterr()
    assert "job 0 starts: seed=" in said.err
    assert "what differs" in said.out


@pytest.mark.parametrize(("seed", "reason"), [(9, "ended by SIGKILL"), (8, "exited with code 1")])
def test_a_job_that_dies_has_failed_and_is_explained(programs: Path, seed: int, reason: str, capsys: Any) -> None:
    assert main(["-m", EXPERIMENT, f"seed={seed},1", "sweep.parallel=2"]) == 1
    assert [row["code"] for row in saved(programs)] == [1, 0]
    assert f"job 0 ended with code 1: {reason}" in capsys.readouterr().err


def test_gpus_are_free_when_nothing_of_the_job_is_left(programs: Path) -> None:
    """A job that is killed at once, before anybody could see what it has started."""
    words = ["hardware.gpus=1", "seed=10,11", "sweep.parallel=2", "supervision.stop_grace_s=0"]
    assert main(["-m", EXPERIMENT, *words]) == 1
    assert [row["code"] for row in saved(programs)] == [1, 0]


def test_each_job_is_given_its_share(programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert main(["-m", EXPERIMENT, "hardware.gpus=2", "seed=1,2,3", "sweep.parallel=3"]) == 0
    saw = dict(json.loads(line) for line in (programs / "saw.jsonl").read_text().splitlines())
    assert {seed: share["gpus"] for seed, share in saw.items()} in [{1: "0", 2: "1", 3: g} for g in "01"]
    assert {share["num_jobs"] for share in saw.values()} == {3}
    said = capsys.readouterr().err
    assert "job 1 starts on GPU 1: seed=2" in said
    assert min(said.index("job 0 ok"), said.index("job 1 ok")) < said.index("job 2 starts")


@pytest.mark.parametrize(("seeds", "seconds"), [("20,22", (0, 5)), ("20,21", (1, 9))])
def test_a_signal_ends_all_and_what_is_deaf_is_killed(
    programs: Path, seeds: str, seconds: tuple[float, float], capsys: Any
) -> None:
    began: list[float] = []

    def interrupt() -> None:
        logs = programs / "runs" / "grpo_math" / "sweeps"
        wait_for("both run", lambda: len([p for p in logs.glob("*/logs/?.log") if "stays" in p.read_text()]) == 2)
        began.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    words = [f"seed={seeds},1,2", "sweep.parallel=2", "supervision.stop_grace_s=0"]
    assert main(["-m", EXPERIMENT, *words]) == 130
    thread.join(5)
    assert seconds[0] <= time.monotonic() - began[0] <= seconds[1]
    assert [row["not_started"] for row in saved(programs)] == [None, None, *["the sweep ended first"] * 2]
    assert [row["code"] for row in saved(programs)][:2] == [130, 1 if "21" in seeds else 130]
    (record,) = (programs / "runs" / "grpo_math" / "sweeps").glob("*")
    assert processes_of(record) == []


def test_an_error_still_keeps_everything_from_starting(programs: Path) -> None:
    assert main(["-m", EXPERIMENT, "limits.generations=8,7", "sweep.parallel=2"]) == 2
    assert not (programs / "runs").exists()


def test_a_plugin_that_chooses_jobs_by_results_needs_them_one_by_one(tmp_path: Path) -> None:
    words = ("-m", EXPERIMENT, "hydra/sweeper=tiny", "sweep.parallel=2")
    for verb in ((), ("check",)):
        done = orchestrate(*verb, *words, cwd=tmp_path, env=PLUGINS)
        assert done.returncode == 64
        assert "hydra/sweeper=tiny chooses each job after it has seen how the last one went" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_the_one_that_hydra_would_take() -> None:
    words = [EXPERIMENT, "runs_dir=/there", "seed=5", "hydra.sweep.dir=${runs_dir}/${name}-${seed}"]
    assert sweep_folder(Composer(), words) == Path("/there/grpo_math-5")
    assert sweep_folder(Composer(), words[:2]).parent == Path("/there/grpo_math/sweeps")


def test_a_job_gets_the_recipe_that_hydra_would_give_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_by_hydra: list[Any] = []

    def run_job(raw: Any, overrides: tuple[str, ...]) -> JobResult:
        given_by_hydra.append((settled(with_defaults(raw)), overrides))
        return JobResult(code=OK, run_dir=tmp_path, result={"last_reward": 0.5})

    monkeypatch.setattr(sweep_module, "run_job", run_job)
    monkeypatch.chdir(tmp_path)
    swept = [EXPERIMENT, "reward=local,inprocess", "trainer.args.top_k=5,6", "trainer.env={A: b}", "~trainer.args.beta"]
    assert main(["-m", *swept]) == 0
    assert len(given_by_hydra) == 4
    for raw, overrides in given_by_hydra:
        assert settled(Composer().compose(overrides).raw) == raw
