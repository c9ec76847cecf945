"""Alarms in the supervisor's loop, one history each: real files of a run directory, a clock that tests move."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from history import After, Beat, Does, FakeWorld, IsReady, SaysNo, plan_of, replay, service, task

from orchestrator.paths import RunPaths
from orchestrator.schema import AlarmsConfig, RunConfig, SupervisionConfig
from orchestrator.supervise import events as ev
from orchestrator.supervise.watch import FileWatch

STALL_S = 20.0  # so a service may be silent for 10 s, and is asked every 2.5 s
PLAN = plan_of(service("generation"), task("trainer", after=("generation",)), task("counts", after=("trainer",)))
UP: list[Beat] = [IsReady("generation"), ev.GatePassed(), After(0.1)]
ENDS: list[Beat] = [ev.Exited("trainer", 0), After(1), ev.Exited("counts", 0)]
MUTE = SaysNo("generation", "no answer within 2 s")
CLIPPED = {"loss": 0.1, "completions/clipped_ratio": 1.0}
FINE = {"loss": 0.1, "completions/clipped_ratio": 0.0}


class Run:
    """A run directory, and the trainer's hand that writes in it."""

    def __init__(self, folder: Path, **alarms: Any) -> None:
        self.paths = RunPaths(run_dir=folder)
        settings = AlarmsConfig(**({"stall_s": STALL_S, "patience_steps": 3} | alarms))
        self.config = RunConfig(supervision=SupervisionConfig(ready_timeout_s=60, alarms=settings))
        self.config.limits.completion_length = 8
        self.step = 0

    def does(self, what: str) -> Does:
        def write() -> None:
            said = {"time": time.time(), "step": self.step, "doing": what}
            self.paths.progress.write_text(json.dumps(said))

        return Does(write)

    def steps(self, *figures: dict[str, Any]) -> Does:
        return Does(lambda: [self.finish(one) for one in figures])

    def finish(self, figures: dict[str, Any], at: float | None = None) -> None:
        self.step += 1
        line = {"step": self.step, "time": time.time() if at is None else at} | figures
        with self.paths.metrics.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def replay(self, *beats: Beat) -> tuple[ev.RunState, FakeWorld, FileWatch]:
        self.watch = FileWatch(self.config, self.paths)
        world = FakeWorld([*UP, *beats])
        return replay(PLAN, world, self.watch), world, self.watch


def alarms(world: FakeWorld) -> list[str]:
    return [f"{step} {detail.split()[0]}" for kind, step, detail in world.told if kind == "alarm"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def stopping(tmp_path: Path) -> Run:
    return Run(tmp_path, action="stop")


def test_a_run_that_goes_on_well_raises_nothing(run: Run) -> None:
    beats: list[Beat] = []
    for _ in range(20):
        beats += [run.does("the generation"), After(STALL_S - 1), run.steps(FINE)]
    state, world, watch = run.replay(*beats, *ENDS)
    assert state.failure is None
    assert alarms(world) == watch.raised == []
    assert not run.paths.alarms.exists()


def test_a_warning_is_shown_once_an_episode_and_listed(run: Run) -> None:
    clips = run.steps(CLIPPED, CLIPPED, CLIPPED, CLIPPED)
    later = run.does("the generation")  # the trainer has gone on when the lines are read
    state, world, watch = run.replay(clips, later, After(1), clips, After(1), run.steps(FINE), After(1), clips, *ENDS)
    assert state.failure is None
    assert alarms(world) == ["trainer RUN001", "trainer RUN001"]
    (listed,) = watch.raised
    # 4 + 4 clipped, one fine, then clipped to the end: the alarm begins at the third of each episode.
    assert (listed["first_step"], listed["last_step"], listed["count"]) == (3, 13, 2)
    assert listed["problem"] == "clipped ratio 1.00 for 3 steps; limits.completion_length = 8"
    written = [json.loads(line) for line in run.paths.alarms.read_text().splitlines()]
    assert [(line["code"], line["step"], line["action"]) for line in written] == [
        ("RUN001", 3, "warn"),
        ("RUN001", 12, "warn"),
    ]


def test_a_stop_ends_the_run_and_names_what_and_where(stopping: Run) -> None:
    state, world, watch = stopping.replay(stopping.steps(*[CLIPPED] * 5), After(5))
    assert state.failure is not None
    assert (state.failure.code, state.failure.step) == (1, "trainer")
    assert state.failure.reason.startswith("trainer: RUN001 completions-clipped: clipped ratio 1.00 for 3 steps")
    assert world.grace_s == PLAN.stop_grace_s
    assert alarms(world) == []  # the end of the run tells
    assert [(one["code"], one["action"], one["first_step"]) for one in watch.raised] == [("RUN001", "stop", 3)]


def test_evaluations_between_the_steps_are_no_steps(stopping: Run) -> None:
    def evaluated() -> None:
        stopping.step -= 1
        stopping.finish({"eval_loss": 0.1, "eval_completions/clipped_ratio": 0.0})

    state, _, _ = stopping.replay(*[stopping.steps(CLIPPED), Does(evaluated)] * 3, After(1), *ENDS)
    assert state.failure is not None
    assert "RUN001" in state.failure.reason


def test_one_code_may_stop_and_the_others_warn(tmp_path: Path) -> None:
    run = Run(tmp_path, actions={"RUN001": "off", "RUN003": "stop"})
    state, world, _ = run.replay(
        run.steps(*[CLIPPED] * 5, CLIPPED | {"grad_norm": None}),
        After(1),
        run.steps(FINE | {"groups/unscored": 0.5}),
        After(1),
    )
    assert alarms(world) == ["trainer RUN006"]
    assert state.failure is not None
    assert "RUN003" in state.failure.reason
    assert "50.0% of the groups" in state.failure.reason


def test_lines_of_the_run_before_a_resume_do_not_count(stopping: Run) -> None:
    for _ in range(5):
        stopping.finish(CLIPPED, at=time.time() - 60)
    state, _, watch = stopping.replay(stopping.steps(CLIPPED, CLIPPED), After(1), *ENDS)
    assert state.failure is None
    assert watch.raised == []


def test_a_metrics_file_that_is_replaced_is_another_history(stopping: Run) -> None:
    def replace() -> None:
        scratch = stopping.paths.metrics.with_suffix(".tmp")
        scratch.write_text("")
        scratch.replace(stopping.paths.metrics)

    clips = stopping.steps(CLIPPED, CLIPPED)
    state, _, _ = stopping.replay(clips, After(1), Does(replace), clips, After(1), *ENDS)
    assert state.failure is None


def test_a_trainer_that_starts_slowly_is_not_stalled(stopping: Run) -> None:
    state, _, _ = stopping.replay(After(59), stopping.does("the proof of the weight sync"), After(19), *ENDS)
    assert state.failure is None


def test_a_trainer_that_never_reports_is_stalled_after_its_start_limit(stopping: Run) -> None:
    state, world, _ = stopping.replay(After(300))
    assert state.failure is not None
    assert "RUN004 stalled: the start of the trainer has not ended after 60 s" in state.failure.reason
    assert "supervision.ready_timeout_s = 60" in state.failure.reason
    assert world.now < 165  # the clock of a history starts at 100 s


def test_a_weight_sync_that_does_not_return(stopping: Run) -> None:
    stopping.step = 12
    state, _, watch = stopping.replay(stopping.does("the weight sync (after step 12)"), After(300))
    assert state.failure is not None
    assert (state.failure.code, state.failure.step) == (1, "trainer")
    assert "the weight sync (after step 12) has not ended after 2" in state.failure.reason
    assert "supervision.alarms.stall_s = 20" in state.failure.reason
    assert watch.raised[0]["first_step"] == 12


def test_a_stall_that_ends_is_an_episode(run: Run) -> None:
    waits: list[Beat] = [run.does("the scoring"), After(STALL_S + 2), run.does("the generation"), After(5)]
    state, world, watch = run.replay(*waits, *waits, *ENDS)
    assert state.failure is None
    assert alarms(world) == ["trainer RUN004", "trainer RUN004"]
    assert watch.raised[0]["count"] == 2


def test_what_comes_after_the_trainer_is_not_its_stall(stopping: Run) -> None:
    state, _, _ = stopping.replay(stopping.does("x"), ev.Exited("trainer", 0), After(200), ev.Exited("counts", 0))
    assert state.failure is None


def test_a_service_that_stops_answering_is_named_before_the_trainer_is(stopping: Run) -> None:
    busy: list[Beat] = [stopping.does("the generation"), After(3), IsReady("generation")]
    state, world, _ = stopping.replay(*busy, *[After(3), MUTE] * 4, After(100))
    assert state.failure is not None
    assert (state.failure.code, state.failure.step) == (1, "generation")
    assert state.failure.reason.startswith("generation: RUN005 service-silent: it has not answered for 1")
    assert "no answer within 2 s" in state.failure.reason
    assert world.log.count("ask generation") >= 4


def test_a_service_that_misses_a_few_questions_is_only_busy(run: Run) -> None:
    beats: list[Beat] = []
    for _ in range(5):
        beats += [run.does("the generation"), After(3), MUTE, After(3), MUTE, After(3), IsReady("generation")]
    state, world, _ = run.replay(*beats, *ENDS)
    assert state.failure is None
    assert alarms(world) == []
    ready = [step for kind, step, _ in world.told if kind == "ready"]
    assert ready == ["generation"]  # announced once, however often it answers


def test_a_service_is_asked_one_question_at_a_time_and_only_while_tasks_run(run: Run) -> None:
    watch = FileWatch(run.config, run.paths)
    world = FakeWorld([])
    asked: list[int] = []
    count = Does(lambda: asked.append(world.log.count("ask generation")))
    world.beats = [IsReady("generation"), After(4), count, ev.GatePassed(), After(30), count, *ENDS]
    replay(PLAN, world, watch)
    assert watch.ask_every_s == STALL_S / 8
    assert asked == [0, 1]  # nobody answered the first one


@pytest.mark.parametrize("alarms_off", [{"action": "off"}, {"actions": {"RUN005": "off"}}])
def test_a_service_is_not_asked_when_nobody_wants_to_know(tmp_path: Path, alarms_off: dict[str, Any]) -> None:
    run = Run(tmp_path, **alarms_off)
    state, world, watch = run.replay(run.does("x"), After(15), *ENDS)
    assert state.failure is None
    assert watch.ask_every_s is None
    assert "ask generation" not in world.log
