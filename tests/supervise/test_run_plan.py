"""run_plan with real processes in this very process."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

import pytest
from scene import PROGRAMS, Scene, wait_for

from orchestrator.steps import Step
from orchestrator.supervise import reap
from orchestrator.supervise.outcome import Outcome, Status, StepView
from orchestrator.supervise.run import run_plan


class Notebook:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str | None, str]] = []
        self.views: list[Mapping[str, StepView]] = []

    def event(self, kind: str, step: str | None, detail: str) -> None:
        self.events.append((kind, step, detail))

    def tick(self, states: Mapping[str, StepView]) -> None:
        self.views.append(states)


def run(scene: Scene, *steps: Step, gate: str | None = None, grace_s: float = 3.0) -> Outcome:
    return run_plan(scene.plan(*steps, grace_s=grace_s), scene.run_dir, gate=lambda: gate, run_id=scene.run_id)


def test_a_run_succeeds_and_stops_in_reverse_order(
    scene: Scene, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    send = reap.send_signal
    monkeypatch.setattr(reap, "send_signal", lambda who, number: (asked.append(who.pid), send(who, number))[1])
    book = Notebook()
    plan = scene.plan(
        scene.step("reward", port=ports[0]),
        scene.step("vllm", port=ports[1], after=("reward",)),
        scene.step("trainer", "--exit-after", "0.5", after=("vllm",)),
    )
    outcome = run_plan(plan, scene.run_dir, gate=lambda: None, observer=book, run_id=scene.run_id)
    assert outcome.code == 0, outcome
    assert outcome.started == ("reward", "vllm", "trainer")
    assert outcome.stop_s < 1
    assert outcome.seconds_by_step["trainer"] >= 0.5
    assert outcome.left == ()
    assert list(dict.fromkeys(asked)) == [scene.pid("vllm"), scene.pid("reward")]
    assert scene.living() == []
    kinds = [(kind, step) for kind, step, _ in book.events if kind in ("ready", "gate-passed", "started")]
    assert kinds == [
        ("started", "reward"), ("ready", "reward"), ("started", "vllm"), ("ready", "vllm"), ("gate-passed", None),
        ("started", "trainer"),
    ]  # fmt: skip
    assert {view["trainer"].status for view in book.views} >= {Status.WAITING, Status.RUNNING}


def test_services_start_in_parallel_and_may_be_slow(scene: Scene, ports: list[int]) -> None:
    began = time.monotonic()
    slow = [scene.step(f"service{n}", "--slow", "1", port=ports[n]) for n in range(3)]
    outcome = run(scene, *slow, scene.step("trainer", "--exit-after", "0"))
    assert outcome.code == 0, outcome
    assert time.monotonic() - began < 2.8


def test_a_service_that_never_listens(scene: Scene, ports: list[int]) -> None:
    mute = dataclasses.replace(scene.step("vllm"), ready=scene.step("x", port=ports[0]).ready, ready_timeout_s=1.0)
    outcome = run(scene, mute, scene.step("trainer", after=("vllm",)))
    assert (outcome.code, outcome.failed) == (3, "vllm")
    assert outcome.reason.startswith("vllm: not ready after 1.")
    assert "connection refused" in outcome.reason
    assert outcome.log_tail[-1] == "hello from vllm"
    assert outcome.log_path is not None
    assert "hello from vllm" in outcome.log_path.read_text()
    assert not scene.noted("trainer")
    assert scene.living() == []


def test_a_service_that_says_503_for_ever(scene: Scene, ports: list[int]) -> None:
    outcome = run(scene, scene.step("vllm", "--slow", "300", port=ports[0], ready_timeout_s=1.0))
    assert outcome.code == 3
    assert "(last probe: 503: loading the model)" in outcome.reason


def test_a_dead_child_ends_the_wait_at_once(scene: Scene, ports: list[int]) -> None:
    began = time.monotonic()
    outcome = run(scene, scene.step("vllm", "--slow", "300", "--exit-after", "0.3", "--code", "7", port=ports[0]))
    assert (outcome.code, outcome.failed) == (3, "vllm")
    assert "exited with code 7" in outcome.reason
    assert outcome.log_tail[-2:] == ("hello from vllm", "vllm exits now")
    assert time.monotonic() - began < 3


def test_a_program_that_does_not_exist(scene: Scene) -> None:
    outcome = run(scene, Step(name="trainer", argv=("/no/such/program", "x")))
    assert (outcome.code, outcome.failed) == (1, "trainer")
    assert "/no/such/program" in outcome.reason


def test_a_stale_server_is_named_and_left_alone(scene: Scene, ports: list[int]) -> None:
    stale_step = scene.step("stale", port=ports[0])
    stale = subprocess.Popen(stale_step.argv)
    try:
        wait_for(lambda: scene.noted("stale"), 10)
        began = time.monotonic()
        outcome = run(scene, scene.step("vllm", port=ports[0]))
        assert (outcome.code, outcome.failed) == (3, "vllm")
        assert f"pid {stale.pid}" in outcome.reason
        assert str(PROGRAMS / "step.py") in outcome.reason
        assert time.monotonic() - began < 1.5
        assert stale.poll() is None
    finally:
        stale.kill()
        stale.wait()


def test_a_server_that_takes_the_port_later_is_no_answer(scene: Scene, ports: list[int]) -> None:
    """The step itself never listens; somebody else does, after the look before the start."""
    mute = dataclasses.replace(scene.step("vllm"), ready=scene.step("x", port=ports[0]).ready, port=ports[0])
    others: list[subprocess.Popen[bytes]] = []
    thief = threading.Thread(
        target=lambda: (
            wait_for(lambda: scene.noted("vllm"), 10),
            # In the session of this process: what the orchestrator runs for itself is not of the run.
            others.append(subprocess.Popen(scene.step("thief", port=ports[0]).argv)),
        )
    )
    thief.start()
    try:
        outcome = run(scene, mute)
        assert (outcome.code, outcome.failed) == (3, "vllm")
        assert f"pid {others[0].pid}" in outcome.reason
        assert others[0].poll() is None
    finally:
        thief.join()
        for other in others:
            other.kill()
            other.wait()


def test_the_gate_has_the_last_word(scene: Scene, ports: list[int]) -> None:
    outcome = run(scene, scene.step("vllm", port=ports[0]), scene.step("trainer"), gate="it serves another model")
    assert (outcome.code, outcome.failed, outcome.reason) == (3, None, "it serves another model")
    assert not scene.noted("trainer")


def test_a_failed_task_fails_the_run(scene: Scene) -> None:
    outcome = run(scene, scene.step("trainer", "--exit-after", "0.1", "--code", "5"))
    assert (outcome.code, outcome.failed) == (1, "trainer")
    assert "exited with code 5" in outcome.reason
    assert outcome.log_tail[-1] == "trainer exits now"


def test_a_service_is_restarted_while_the_trainer_runs(scene: Scene, ports: list[int]) -> None:
    book = Notebook()
    # Its stubborn child does not hold the port, but must not survive into the second life either.
    dies = scene.step("vllm", "--exit-after", "0.5", "--once", "--code", "9", "--children", port=ports[0], restarts=1)
    plan = scene.plan(dies, scene.step("trainer", "--exit-after", "2.5", after=("vllm",)), grace_s=0.5)
    outcome = run_plan(plan, scene.run_dir, gate=lambda: None, observer=book, run_id=scene.run_id)
    assert outcome.code == 0, outcome
    assert [kind for kind, step, _ in book.events if step == "vllm"] == [
        "start", "started", "ready", "exited", "restart", "start", "started", "ready", "exited",
    ]  # fmt: skip
    assert scene.living() == []


def test_grandchildren_end_with_the_run(scene: Scene) -> None:
    trainer = scene.step("trainer", "--children", "--exit-after", "1")
    outcome = run(scene, trainer, grace_s=1.0)
    assert outcome.code == 0
    assert scene.noted("setsid", "daemon", "stubborn", "bare")
    assert scene.living() == []
    assert 1.0 <= outcome.stop_s < 2.0
    assert zombies_of_this_process() == []


def zombies_of_this_process() -> list[str]:
    listing = subprocess.run(["ps", "-o", "stat=,pid=,args=", "--ppid", str(os.getpid())], stdout=subprocess.PIPE)
    return [line for line in listing.stdout.decode().splitlines() if line.startswith("Z")]


def test_many_runs_in_one_process_leave_nothing_behind(scene: Scene) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert run(scene, scene.step("trainer", "--exit-after", "0")).code == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers
    assert len(os.listdir("/proc/self/fd")) == open_files
    assert zombies_of_this_process() == []


def test_a_broken_observer_leaves_no_process_behind(scene: Scene, ports: list[int]) -> None:
    class Broken(Notebook):
        def event(self, kind: str, step: str | None, detail: str) -> None:
            if kind == "ready":
                raise OSError("the terminal is gone")

    plan = scene.plan(scene.step("vllm", port=ports[0]), grace_s=1.0)
    with pytest.raises(OSError, match="the terminal is gone"):
        run_plan(plan, scene.run_dir, gate=lambda: None, observer=Broken(), run_id=scene.run_id)
    assert scene.noted("vllm")
    assert scene.living() == []


def test_children_reach_loopback_past_a_proxy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    argv = (sys.executable, "-c", "import os; print(os.environ['NO_PROXY'], len(os.environ['SECRET_TOKEN']))")
    outcome = run(scene, Step(name="trainer", argv=argv))
    log = (scene.run_dir / "logs" / "trainer.log").read_text()
    assert outcome.code == 0
    assert "example.org,127.0.0.1,localhost,::1 6" in log
    assert not any("s3cret" in path.read_text() for path in scene.run_dir.rglob("*") if path.is_file())


def test_a_plan_with_a_mistake_starts_nothing(scene: Scene) -> None:
    with pytest.raises(ValueError, match="comes after 'vllm', which is no step"):
        run(scene, scene.step("trainer", after=("vllm",)))


def test_a_free_port_with_an_old_connection_is_free(scene: Scene, ports: list[int]) -> None:
    """TIME_WAIT is no listener."""
    with socket.create_server(("127.0.0.1", ports[0])) as server:
        client = socket.create_connection(("127.0.0.1", ports[0]))
        server.accept()[0].close()
        client.close()
    outcome = run(scene, scene.step("vllm", port=ports[0]), scene.step("trainer", "--exit-after", "0"))
    assert outcome.code == 0, outcome
