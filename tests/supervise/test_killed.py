"""What is left of a run whose orchestrator gets a signal: nothing, within five seconds."""

import signal
import subprocess
import time

import pytest
from scene import Scene, wait_for

from orchestrator.supervise.record import live_processes, read_record, stop_run

GONE_S = 5.0
FAMILY = ("setsid", "daemon", "stubborn", "bare")


def wait_for_training(scene: Scene, orchestrator: "subprocess.Popen[bytes]") -> None:
    log = scene.folder / "orchestrator.log"
    wait_for(lambda: scene.noted("trainer", *FAMILY) or orchestrator.poll() is not None, 20)
    assert orchestrator.poll() is None, log.read_text()


@pytest.fixture
def training(scene: Scene, ports: list[int]) -> "subprocess.Popen[bytes]":
    """An orchestrator in the middle of a task, with a family that does not want to go."""
    plan = scene.plan(
        scene.step("reward", port=ports[0]),
        scene.step("vllm", "--children", "--stubborn", port=ports[1]),
        scene.step("trainer", after=("reward", "vllm")),
    )
    orchestrator = scene.launch(plan)
    wait_for_training(scene, orchestrator)
    return orchestrator


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_the_middle_of_a_task(
    scene: Scene, training: "subprocess.Popen[bytes]", number: signal.Signals, code: int
) -> None:
    training.send_signal(number)
    took_s = wait_for(lambda: training.poll() is not None and not scene.living(), GONE_S, str(scene.living()))
    print(f"signal {number.name}: gone after {took_s:.2f} s")
    assert training.returncode == code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle_of_the_start(scene: Scene, ports: list[int], number: signal.Signals, code: int) -> None:
    slow = scene.step("vllm", "--slow", "300", port=ports[0], ready_timeout_s=300.0)
    orchestrator = scene.launch(scene.plan(slow, scene.step("trainer", after=("vllm",))))
    wait_for(lambda: scene.noted("vllm"), 20)
    orchestrator.send_signal(number)
    wait_for(lambda: orchestrator.poll() is not None and not scene.living(), GONE_S, str(scene.living()))
    assert orchestrator.returncode == code
    assert not scene.noted("trainer")


def test_a_second_ctrl_c_does_not_wait(scene: Scene) -> None:
    orchestrator = scene.launch(scene.plan(scene.step("trainer", "--stubborn"), grace_s=60.0))
    wait_for(lambda: scene.noted("trainer"), 20)
    began = time.monotonic()
    orchestrator.send_signal(signal.SIGINT)
    # One that comes sooner is taken for an echo of the first.
    wait_for(lambda: time.monotonic() - began > 1.0, 2)
    assert orchestrator.poll() is None
    orchestrator.send_signal(signal.SIGINT)
    wait_for(lambda: orchestrator.poll() is not None, 2)
    assert orchestrator.returncode == 130
    assert scene.living() == []


def test_kill_9_leaves_nothing(scene: Scene, training: "subprocess.Popen[bytes]") -> None:
    record = read_record(scene.run_dir)
    assert record is not None
    training.kill()
    training.wait()
    took_s = wait_for(lambda: not scene.living(), GONE_S, str(scene.living()))
    print(f"kill -9: gone after {took_s:.2f} s")
    assert took_s > 2.5, "the stubborn ones were not given their grace"
    wait_for(lambda: not live_processes(scene.run_dir), 1)
    assert "is gone" in (scene.run_dir / "logs" / "_guardian.log").read_text()


def test_kill_9_without_a_stubborn_child_is_quick(scene: Scene) -> None:
    orchestrator = scene.launch(scene.plan(scene.step("trainer")))
    wait_for(lambda: scene.noted("trainer"), 20)
    orchestrator.kill()
    orchestrator.wait()
    took_s = wait_for(lambda: not scene.living(), 1.5)
    print(f"kill -9, all polite: gone after {took_s:.2f} s")
    assert (scene.notes / "trainer.ended").exists()


def test_stop_run_asks_the_orchestrator(scene: Scene, training: "subprocess.Popen[bytes]") -> None:
    listed = live_processes(scene.run_dir)
    assert {one.step for one in listed} == {"reward", "vllm", "trainer", None}
    assert len(listed) == 3 + len(FAMILY)
    ended = stop_run(scene.run_dir, grace_s=4.0)
    assert {one.pid for one in listed} <= set(ended)
    assert training.wait(2) == 143
    assert scene.living() == []
    assert live_processes(scene.run_dir) == ()


def test_stop_run_reaps_what_orchestrator_and_guardian_left(scene: Scene, training: "subprocess.Popen[bytes]") -> None:
    record = read_record(scene.run_dir)
    assert record is not None
    # The guardian first, and the orchestrator before it notices: as when a whole control group runs out of memory.
    training.send_signal(signal.SIGSTOP)
    subprocess.run(["kill", "-KILL", str(record.guardian.pid)], check=True)
    training.kill()
    training.wait()
    assert len(live_processes(scene.run_dir)) >= 3 + len(FAMILY) - 1
    ended = stop_run(scene.run_dir, grace_s=1.0)
    assert len(ended) >= 3 + len(FAMILY) - 1
    # `bare` shows no sign of the run once all who remembered its parent are dead.
    assert set(scene.living()) <= {"bare"}
    for name in scene.living():
        subprocess.run(["kill", "-KILL", str(scene.pid(name))], check=True)


def test_stop_run_of_nothing(scene: Scene) -> None:
    assert stop_run(scene.run_dir, grace_s=1.0) == []
    assert live_processes(scene.run_dir) == ()


def test_a_guardian_that_is_killed_is_replaced(scene: Scene) -> None:
    orchestrator = scene.launch(scene.plan(scene.step("trainer")))
    wait_for(lambda: scene.noted("trainer"), 20)
    first = read_record(scene.run_dir)
    assert first is not None
    subprocess.run(["kill", "-KILL", str(first.guardian.pid)], check=True)

    def replaced() -> bool:
        now = read_record(scene.run_dir)
        return now is not None and now.guardian != first.guardian

    wait_for(replaced, 3)
    orchestrator.kill()
    orchestrator.wait()
    wait_for(lambda: not scene.living(), GONE_S)
