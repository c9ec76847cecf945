"""The rules of supervision, one history each."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from history import (
    After,
    Beat,
    Begun,
    FakeWorld,
    IsReady,
    NotBegun,
    SaysNo,
    Together,
    plan_of,
    replay,
    service,
    task,
)

from orchestrator.steps import Plan
from orchestrator.supervise import events as ev
from orchestrator.supervise.outcome import Status
from orchestrator.supervise.schedule import plan_problems

BOTH = plan_of(service("reward"), service("vllm"), task("trainer", after=("reward", "vllm")))
CHAIN = plan_of(service("reward"), service("vllm", after=("reward",)), task("trainer", after=("vllm",)))
RESTARTS = plan_of(service("vllm", restarts=2), task("trainer", after=("vllm",)))
UP: list[Beat] = [IsReady("reward"), IsReady("vllm"), ev.GatePassed()]


@dataclass(frozen=True)
class History:
    plan: Plan
    beats: list[Beat]
    code: int
    failed: str | None = None
    reason: str = ""
    never_started: set[str] = field(default_factory=set)
    broken: Mapping[str, str] = field(default_factory=dict)


HISTORIES = {
    "trainer_finishes": History(BOTH, [*UP, Begun("trainer"), ev.Exited("trainer", 0)], 0),
    "services_start_in_parallel": History(BOTH, [Begun("reward"), Begun("vllm"), *UP, ev.Exited("trainer", 0)], 0),
    "a_service_waits_for_the_one_before": History(
        CHAIN,
        [NotBegun("vllm"), IsReady("reward"), Begun("vllm"), IsReady("vllm"), ev.GatePassed(), ev.Exited("trainer", 0)],
        0,
    ),
    "the_trainer_waits_for_the_gate": History(
        BOTH,
        [
            IsReady("reward"),
            IsReady("vllm"),
            After(1),
            NotBegun("trainer"),
            ev.GatePassed(),
            Begun("trainer"),
            ev.Exited("trainer", 0),
        ],
        0,
    ),
    "a_task_that_a_service_needs_does_not": History(
        plan_of(task("prepare"), service("vllm", after=("prepare",)), task("trainer")),
        [
            Begun("prepare"),
            NotBegun("vllm"),
            ev.Exited("prepare", 0),
            After(0.1),
            Begun("vllm"),
            NotBegun("trainer"),
            IsReady("vllm"),
            ev.GatePassed(),
            Begun("trainer"),
            ev.Exited("trainer", 0),
        ],
        0,
    ),
    "a_task_waits_for_a_task": History(
        plan_of(task("train"), task("evaluate", after=("train",))),
        [
            ev.GatePassed(),
            NotBegun("evaluate"),
            ev.Exited("train", 0),
            After(0.1),
            Begun("evaluate"),
            ev.Exited("evaluate", 0),
        ],
        0,
    ),
    "service_dies_before_healthy": History(
        BOTH, [After(1), ev.Exited("vllm", 1)], 3, "vllm", "vllm: exited with code 1 after", {"trainer"}
    ),
    "service_exits_with_0_before_healthy": History(
        BOTH, [ev.Exited("vllm", 0)], 3, "vllm", "before it was ready", {"trainer"}
    ),
    "service_is_killed": History(BOTH, [ev.Exited("vllm", -9)], 3, "vllm", "ended by SIGKILL", {"trainer"}),
    "service_dies_while_another_starts": History(
        BOTH, [IsReady("vllm"), ev.Exited("vllm", 1)], 3, "vllm", "exited with code 1", {"trainer"}
    ),
    "service_is_never_ready": History(
        BOTH,
        [IsReady("vllm"), SaysNo("reward", "503: loading")],
        3,
        "reward",
        "reward: not ready after 30.0 s (last probe: 503: loading)",
        {"trainer"},
    ),
    "service_cannot_be_started": History(
        BOTH, [], 3, "reward", "port 1 is taken", {"reward", "vllm", "trainer"}, {"reward": "port 1 is taken"}
    ),
    "somebody_else_answers": History(
        BOTH, [ev.Impostor("vllm", 2, "port 1 is served by pid 7")], 3, "vllm", "served by pid 7", {"trainer"}
    ),
    "an_answer_about_another_process_is_ignored": History(
        BOTH, [ev.Ready("vllm", 99), IsReady("reward"), After(1), ev.Signal(15)], 143, None, "SIGTERM", {"trainer"}
    ),
    "gate_fails": History(BOTH, [*UP[:2], ev.GateFailed("another model")], 3, None, "another model", {"trainer"}),
    "gate_hangs": History(BOTH, UP[:2], 3, None, "was not over after 5 s", {"trainer"}),
    "service_dies_during_the_gate": History(
        BOTH, [*UP[:2], ev.Exited("reward", 2)], 3, "reward", "code 2", {"trainer"}
    ),
    "trainer_fails": History(BOTH, [*UP, ev.Exited("trainer", 5)], 1, "trainer", "trainer: exited with code 5"),
    "trainer_cannot_be_started": History(
        BOTH, UP, 1, "trainer", "no such program", {"trainer"}, {"trainer": "no such program"}
    ),
    "service_dies_during_training": History(BOTH, [*UP, ev.Exited("vllm", -11)], 1, "vllm", "ended by SIGSEGV"),
    "a_dead_service_explains_the_task_that_fails_with_it": History(
        BOTH, [*UP, Together(ev.Exited("trainer", 1), ev.Exited("vllm", -11))], 1, "vllm", "SIGSEGV"
    ),
    "success_beats_a_service_that_ends_in_the_same_moment": History(
        BOTH, [*UP, Together(ev.Exited("vllm", 1), ev.Exited("trainer", 0))], 0
    ),
    "service_is_restarted": History(
        RESTARTS,
        [IsReady("vllm"), ev.GatePassed(), ev.Exited("vllm", 1), After(1.5), IsReady("vllm"), ev.Exited("trainer", 0)],
        0,
    ),
    "restarts_are_used_up": History(
        RESTARTS,
        [
            IsReady("vllm"),
            ev.GatePassed(),
            ev.Exited("vllm", 1),
            After(1),
            ev.Exited("vllm", 1),
            After(2),
            IsReady("vllm"),
            ev.Exited("vllm", 4),
        ],
        1,
        "vllm",
        "code 4",
    ),
    "restarts_do_not_help_at_the_start": History(RESTARTS, [ev.Exited("vllm", 1)], 3, "vllm", "code 1", {"trainer"}),
    "a_task_is_restarted_if_it_may": History(
        plan_of(task("trainer", restarts=1)),
        [ev.GatePassed(), ev.Exited("trainer", 1), After(1), ev.Exited("trainer", 0)],
        0,
    ),
    "ctrl_c_while_services_start": History(BOTH, [ev.Signal(signal.SIGINT)], 130, None, "SIGINT", {"trainer"}),
    "term_during_the_gate": History(BOTH, [*UP[:2], ev.Signal(signal.SIGTERM)], 143, None, "SIGTERM", {"trainer"}),
    "hang_up_during_training": History(BOTH, [*UP, Begun("trainer"), ev.Signal(signal.SIGHUP)], 129, None, "SIGHUP"),
    "no_services": History(plan_of(task("trainer")), [ev.GatePassed(), ev.Exited("trainer", 0)], 0),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    history = HISTORIES[name]
    world = FakeWorld(list(history.beats), history.broken)
    state = replay(history.plan, world)
    assert (state.failure.code if state.failure else 0) == history.code
    assert (state.failure.step if state.failure else None) == history.failed
    assert history.reason in (state.failure.reason if state.failure else "")
    assert {step.name for step in history.plan.steps} - set(state.started) == history.never_started
    assert world.grace_s == history.plan.stop_grace_s
    assert not {one.status for one in state.steps.values()} & {Status.STARTING, Status.RUNNING, Status.READY}


def test_restarts_back_off() -> None:
    dies = ev.Exited("vllm", 1)
    world = FakeWorld([IsReady("vllm"), ev.GatePassed(), dies, After(3), dies, After(3), IsReady("vllm")])
    world.beats += [ev.Exited("trainer", 0)]
    state = replay(RESTARTS, world)
    died = [at for name, at in world.times if name == "exit vllm"]
    began = [at for name, at in world.times if name == "start vllm"]
    assert [again - end for end, again in zip(died, began[1:], strict=True)] == pytest.approx([0.5, 1.0], abs=0.2)
    assert state.steps["vllm"].restarts == 2


@pytest.mark.parametrize(("gap_s", "hurried"), [(0.1, False), (1.0, True)])
def test_a_second_ctrl_c_ends_the_grace_unless_it_is_an_echo(gap_s: float, hurried: bool) -> None:
    sigint = ev.Signal(signal.SIGINT)
    world = FakeWorld([*UP, sigint, After(gap_s), sigint, After(2), sigint], stops_by_itself=False)
    state = replay(BOTH, world)
    assert state.failure is not None
    assert state.failure.code == 130
    assert "hurry" in world.log
    assert bool(world.beats) is hurried


def test_one_probe_at_a_time_and_not_more_often_than_asked() -> None:
    world = FakeWorld([After(0.5), SaysNo("vllm", "refused"), After(0.5), ev.Signal(15)])
    replay(plan_of(service("vllm")), world)
    assert world.log == ["start vllm", "probe vllm", "probe vllm", "stop"]


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (plan_of(task("a"), task("a")), "two steps are called 'a'"),
        (plan_of(task("a", after=("b",))), "comes after 'b'"),
        (plan_of(task("a", after=("b",)), task("b", after=("a",))), "wait for each other"),
    ],
)
def test_a_plan_that_cannot_be_carried_out(plan: Plan, problem: str) -> None:
    assert problem in "; ".join(plan_problems(plan))


def test_a_good_plan_has_no_problems() -> None:
    assert list(plan_problems(CHAIN)) == []
