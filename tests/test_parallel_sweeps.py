"""Jobs of a sweep side by side: who may start when, GPUs and ports of their own, and nothing that outlives the sweep."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import parallel
from orchestrator import sweep as sweep_module
from orchestrator.cli import main
from orchestrator.compose import Composer
from orchestrator.exits import OK
from orchestrator.facts.types import Gpu
from orchestrator.jobs import JobResult, check_job
from orchestrator.request import requested, sweep_folder
from orchestrator.resolve import settled, with_defaults
from orchestrator.schema import RunConfig
from orchestrator.turns import Need, Pool, Turn, need_of, next_turn, pool_of
from tests.orchestrated import SMALL, orchestrate, processes_of, read, run_dirs, started, wait_for

EXPERIMENT = "+experiment=grpo_math"
PLUGINS = {"PYTHONPATH": str(Path(__file__).parent / "plugins")}
FOUR = (0, 1, 2, 3)


# Who may start: histories without a process or a clock.


def replay(needs: Sequence[Need], pool: Sequence[int], limit: int, lasts: Sequence[int]) -> list[list[Turn]]:
    """The turns that run side by side, after each time that something starts or ends. Job n lasts `lasts[n]`."""
    waiting, running, now = list(needs), dict[int, Turn](), 0
    ends: dict[int, int] = {}
    history: list[list[Turn]] = []
    while waiting or running:
        while turn := next_turn(waiting, list(running.values()), pool, limit):
            waiting.remove(turn.need)
            running[turn.job], ends[turn.job] = turn, now + lasts[turn.job]
        history.append(list(running.values()))
        assert running, f"{waiting} wait for ever"
        now = min(ends[job] for job in running)
        running = {job: turn for job, turn in running.items() if ends[job] > now}
    return history


def side_by_side(history: list[list[Turn]]) -> list[list[int]]:
    return [sorted(turn.job for turn in turns) for turns in history]


def test_four_jobs_of_two_gpus_run_two_at_a_time_on_four() -> None:
    history = replay([Need(job=n, num_gpus=2) for n in range(4)], FOUR, 4, [5, 5, 5, 5])
    assert side_by_side(history) == [[0, 1], [2, 3]]
    assert [[turn.gpus for turn in turns] for turns in history] == [[(0, 1), (2, 3)]] * 2


def test_a_job_takes_the_gpus_of_the_one_that_ended() -> None:
    history = replay([Need(job=n, num_gpus=2) for n in range(3)], FOUR, 4, [9, 2, 4])
    assert side_by_side(history) == [[0, 1], [0, 2], [0]]
    assert history[1][1].gpus == (2, 3)


def test_a_job_that_names_its_gpus_waits_for_those() -> None:
    needs = [Need(job=0, gpus=(0, 1)), Need(job=1, gpus=(1,)), Need(job=2, num_gpus=2), Need(job=3, gpus=(0,))]
    history = replay(needs, FOUR, 4, [3, 3, 9, 3])
    assert side_by_side(history) == [[0, 2], [1, 2, 3], [2]]


def test_jobs_without_gpus_fill_up() -> None:
    needs = [Need(job=0, num_gpus=4), Need(job=1, num_gpus=4), *(Need(job=n) for n in range(2, 6))]
    assert side_by_side(replay(needs, FOUR, 3, [6, 6, 2, 2, 2, 2]))[:2] == [[0, 2, 3], [0, 4, 5]]


def test_a_job_that_needs_all_is_not_overtaken_for_ever() -> None:
    needs = [Need(job=0, num_gpus=1), Need(job=1, num_gpus=4), *(Need(job=n, num_gpus=1) for n in range(2, 9))]
    history = replay(needs, FOUR, 9, [5] * 9)
    assert side_by_side(history)[:3] == [[0], [1], [2, 3, 4, 5]]


def test_a_port_that_two_recipes_fix_is_used_by_one_at_a_time() -> None:
    fixed = frozenset({8000})
    needs = [Need(job=0, ports=fixed), Need(job=1, ports=fixed), Need(job=2)]
    assert side_by_side(replay(needs, (), 3, [2, 2, 3])) == [[0, 2], [1, 2], [1]]


NEEDS = st.one_of(
    st.builds(dict, num_gpus=st.integers(0, 4)),
    st.builds(dict, gpus=st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True).map(tuple)),
    st.builds(dict, ports=st.frozensets(st.integers(8000, 8001), max_size=1)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NEEDS, st.integers(1, 9)), min_size=1, max_size=10), st.integers(1, 5))
def test_every_history_keeps_the_promises(jobs: list[tuple[dict[str, Any], int]], limit: int) -> None:
    needs = [Need(job=n, **need) for n, (need, _) in enumerate(jobs)]
    history = replay(needs, FOUR, limit, [lasts for _, lasts in jobs])
    for turns in history:
        assert len(turns) <= limit
        for taken in ([g for t in turns for g in t.gpus], [p for t in turns for p in t.need.ports]):
            assert len(taken) == len(set(taken))
    for turn in (turn for turns in history for turn in turns):
        assert turn.gpus == turn.need.gpus if turn.need.gpus else len(turn.gpus) == turn.need.num_gpus
    # Whoever is first in line has its turn, at the latest, when all that ran at that time have ended.
    side, order = side_by_side(history), list(range(len(needs)))
    for number in order:
        first_in_line = next(
            i for i in range(len(side)) if set(order[:number]) <= {j for s in side[: i + 1] for j in s}
        )
        began = next(i for i, jobs_there in enumerate(side) if number in jobs_there)
        ahead = set(side[first_in_line]) - {number}
        assert all(ahead & set(side[i]) for i in range(first_in_line, began))


# What a job needs, from its recipe.


def runs(*gpus: int | None) -> list[RunConfig]:
    configs = [RunConfig() for _ in gpus]
    for run, number in zip(configs, gpus, strict=True):
        run.hardware.gpus = number
    return configs


def gpus(*indices: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(index=index, name="H100", memory_gib=80.0) for index in indices)


UNSEEN = "nvidia-smi did not answer"


@pytest.mark.parametrize(
    ("declared", "seen", "visible", "indices", "words"),
    [
        pytest.param([None], gpus(0, 1), None, (0, 1), {0: "0", 1: "1"}, id="what-is-here"),
        pytest.param([None], gpus(5, 4), "5,4", (5, 4), {5: "5", 4: "4"}, id="what-is-visible"),
        pytest.param([None], gpus(2, 3), "GPU-c, GPU-d", (2, 3), {2: "GPU-c", 3: "GPU-d"}, id="by-uuid"),
        pytest.param([2, 4], gpus(*range(8)), None, FOUR, {n: str(n) for n in FOUR}, id="the-first-that-are-declared"),
        pytest.param(
            [4, None], gpus(*range(8)), None, tuple(range(8)), {n: str(n) for n in range(8)}, id="one-is-open"
        ),
        pytest.param([8], gpus(0, 1), None, (0, 1), {0: "0", 1: "1"}, id="more-declared-than-here"),
        pytest.param([2], (), None, (0, 1), {0: "0", 1: "1"}, id="declared-where-there-are-none"),
        pytest.param([2], (), "", (0, 1), {}, id="hidden-on-purpose-stay-hidden"),
        pytest.param([None], (), None, (), {}, id="none"),
        pytest.param([2], UNSEEN, None, (0, 1), {0: "0", 1: "1"}, id="declared-where-nobody-knows"),
        pytest.param([4], UNSEEN, "MIG-a,MIG-b", (0, 1), {0: "MIG-a", 1: "MIG-b"}, id="parts-of-a-gpu"),
    ],
)
def test_the_pool(
    declared: list[int | None], seen: Any, visible: str | None, indices: tuple[int, ...], words: dict[int, str]
) -> None:
    assert pool_of(runs(*declared), seen, visible) == Pool(indices=indices, words=words)


def test_a_judges_gpu_is_nobodys() -> None:
    (run,) = runs(None)
    run.reward.judge.gpus = [3]
    pool = pool_of([run], gpus(*FOUR), None)
    assert pool.indices == (0, 1, 2)
    assert not pool_of(runs(None), UNSEEN, None).known


def test_what_is_not_of_this_machine_is_not_translated() -> None:
    pool = pool_of(runs(None), gpus(4, 5), "4,5")
    assert [pool.visible(wanted) for wanted in ((5,), (), (0, 1))] == ["5", "", None]
    assert Pool().visible(()) is None


HERE = pool_of(runs(None), gpus(*FOUR), None)
NOWHERE = Pool(known=False)
VLLM = ("generation=vllm", "generation.tensor_parallel_size=2")


@pytest.mark.parametrize(
    ("overrides", "pool", "need"),
    [
        ([], HERE, {"num_gpus": 1}),
        ([], Pool(), {}),
        ([], NOWHERE, {"gpus": (0,)}),
        (["trainer.args.use_cpu=true"], HERE, {}),
        (["trainer.args.use_cpu=true"], NOWHERE, {}),
        (["launcher=torchrun", "launcher.num_processes=2", "hardware.gpus=4"], HERE, {"num_gpus": 2}),
        ([*VLLM, "hardware.gpus=4"], HERE, {"num_gpus": 3}),
        (["generation=colocate"], HERE, {"num_gpus": 1}),
        (["launcher=torchrun", "launcher.num_processes=8"], HERE, {"num_gpus": 4}),
        (["launcher.gpus=[2]"], HERE, {"gpus": (2,)}),
        ([*VLLM, "generation.gpus=[1,2]"], HERE, {"gpus": (1, 2, 0)}),
        (["trainer.env.CUDA_VISIBLE_DEVICES='1,3'"], HERE, {"gpus": (1, 3)}),
        (["reward.judge.gpus=[3]"], HERE, {"num_gpus": 1}),
        (["generation.port=8000", "trainer.args.use_cpu=true"], HERE, {"ports": frozenset({8000})}),
    ],
)
def test_what_a_job_needs(overrides: list[str], pool: Pool, need: dict[str, Any]) -> None:
    assert need_of(7, check_job(Composer(), [EXPERIMENT, *overrides]), pool) == Need(job=7, **need)


def test_four_parallel_jobs_of_two_gpus_on_four() -> None:
    """What people met: four jobs, each of which took all GPUs."""
    swept = [EXPERIMENT, "launcher=torchrun", "launcher.num_processes=2", "hardware.gpus=4", "sweep.parallel=4"]
    request = requested(Composer(), [*swept, "trainer.args.learning_rate=1e-6,2e-6,3e-6,4e-6"], multirun=True)
    jobs = [check_job(Composer(), overrides) for overrides in request.jobs]
    pool = pool_of([job.run for job in jobs], gpus(*FOUR), None)
    history = replay([need_of(n, job, pool) for n, job in enumerate(jobs)], pool.indices, 4, [5, 5, 5, 5])
    assert side_by_side(history) == [[0, 1], [2, 3]]
    assert [[pool.visible(turn.gpus) for turn in turns] for turns in history] == [["0,1", "2,3"]] * 2


# The sweep itself, with programs in the place of the jobs.

PROGRAM = """\
import json, os, signal, sys, time
told = json.loads(os.environ["ORCHESTRATE_JOB"])
seed = next(int(o.partition("=")[2]) for o in told["overrides"] if o.startswith("seed="))
with open("saw.jsonl", "a") as file:
    file.write(json.dumps([seed, told["share"]]) + "\\n")
if seed == 9:
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
    swept = [EXPERIMENT, "reward=local,inprocess", "trainer.args.top_k=5,6", "trainer.env={A: b}", "~data.path"]
    assert main(["-m", *swept]) == 0
    assert len(given_by_hydra) == 4
    for raw, overrides in given_by_hydra:
        assert settled(Composer().compose(overrides).raw) == raw


# Real runs.


def sweep_dir(cwd: Path) -> Path:
    (folder,) = (cwd / "runs" / "grpo_math" / "sweeps").glob("*")
    return Path(folder)


@pytest.mark.e2e
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
    assert [tuple(read(folder / "lock.json")["overrides"]) for folder in folders] == [tuple(r["overrides"]) for r in [
        row | {"overrides": [o.replace("(not shown)", "sesame") for o in row["overrides"]]} for row in rows]]  # fmt: skip
    plans = [read(folder / "plan.json")["steps"] for folder in folders]
    ports = [{step["port"] for step in plan if step["port"]} for plan in plans]
    assert not ports[0] & ports[1]
    told = done.stderr.splitlines()
    assert [line.split()[1] for line in told if " starts: " in line] == ["0", "1", "2"]
    assert next(i for i, line in enumerate(told) if "job 2 starts" in line) > 2
    assert f"job 1 ended with code 1: trainer: exited with code 1" in done.stderr
    assert "use_cpu" in (sweep_dir(tmp_path) / "logs" / "1.log").read_text()
    everything = done.stdout + done.stderr
    everything += "".join(path.read_text() for path in sweep_dir(tmp_path).rglob("*") if path.is_file())
    assert "sesame" not in everything
    assert processes_of(sweep_dir(tmp_path)) == []


@pytest.mark.e2e
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


@pytest.mark.e2e
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
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


@pytest.mark.e2e
def test_kill_9_of_the_sweep_leaves_nothing_of_any_job(tmp_path: Path) -> None:
    process = started(*LONG, "seed=1,2", cwd=tmp_path)
    training(tmp_path, process, 2)
    assert len(left(tmp_path)) >= 2 * 5  # each an orchestrator, a guardian, two services, a trainer
    process.kill()
    began = time.monotonic()
    wait_for("everything is gone", lambda: left(tmp_path) == [], 10)
    print(f"kill -9 of the sweep: gone after {time.monotonic() - began:.2f} s")
    process.communicate()


@pytest.mark.e2e
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
