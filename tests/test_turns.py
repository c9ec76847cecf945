"""Who of a sweep may start when, on which GPUs, and what a recipe says a job needs."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.compose import Composer
from orchestrator.facts.types import Gpu
from orchestrator.jobs import check_job
from orchestrator.request import requested
from orchestrator.schema import RunConfig
from orchestrator.turns import Need, Pool, Turn, need_of, next_turn, pool_of

EXPERIMENT = "+experiment=grpo_math"
FOUR = (0, 1, 2, 3)


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
