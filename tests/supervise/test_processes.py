"""Names of processes, families, and the end of them."""

import os
import signal
import subprocess
import sys
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from orchestrator.steps import Step
from orchestrator.supervise.family import Family, end_order
from orchestrator.supervise.procs import (
    Identity,
    Proc,
    boot_id,
    descendants,
    identity_of,
    is_alive,
    read_proc,
    read_table,
    send_signal,
    ticks_since_boot,
)
from orchestrator.supervise.reap import KILL_LIMIT_S, Ending, end_run_processes
from orchestrator.supervise.spawn import SpawnError, child_env, spawn


def proc(pid: int, ppid: int, start: int = 0, session: int = 0, state: str = "S") -> Proc:
    return Proc(pid=pid, ppid=ppid, session=session or pid, start=start or pid, state=state)


def table_of(*procs: Proc) -> dict[int, Proc]:
    return {one.pid: one for one in procs}


def test_this_process_is_read() -> None:
    me = read_proc(os.getpid())
    assert me is not None
    assert (me.ppid, me.session, me.alive) == (os.getppid(), os.getsid(0), True)
    assert 0 < me.start <= ticks_since_boot()
    assert read_table()[me.pid] == me
    assert len(boot_id()) == 36


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(identity_of(child.pid))
    child.wait()
    assert read_proc(child.pid) is None


def test_a_reused_pid_is_not_signalled() -> None:
    child = subprocess.Popen(["sleep", "300"])
    now = identity_of(child.pid)
    assert not send_signal(Identity(now.pid, now.start - 1), signal.SIGKILL)
    assert is_alive(now)
    assert send_signal(now, signal.SIGKILL)
    assert child.wait() == -9
    assert not send_signal(now, signal.SIGKILL)


def test_descendants_do_not_go_through_a_reused_pid() -> None:
    table = table_of(proc(10, 1), proc(11, 10), proc(12, 11), proc(20, 1))
    assert descendants(table, [Identity(10, 10)]) == {(10, 10), (11, 11), (12, 12)}
    assert descendants(table, [Identity(10, 9)]) == set()


def test_a_family_remembers_orphans() -> None:
    family = Family("run")
    family.add([Identity(10, 10)])
    family.look(table_of(proc(10, 1), proc(11, 10)))
    family.look(table_of(proc(11, 1), proc(12, 11), proc(13, 1)))
    assert family.known == {(11, 11), (12, 12)}


def test_a_family_adopts_but_leaves_helpers_and_older_children_alone() -> None:
    family = Family("run", owner=Identity(5, 5), since=100)
    family.spare([Identity(203, 203)])
    orchestrator, orphan, before = proc(5, 1, session=5), proc(201, 5, session=199), proc(50, 5)
    helper, guardian = proc(202, 5, session=5), proc(203, 5)
    family.look(table_of(orchestrator, orphan, before, helper, guardian))
    assert family.known == {(201, 201)}


def test_the_order_of_the_end() -> None:
    reward, worker, trainer, rank = proc(10, 1), proc(15, 10), proc(12, 1), proc(13, 12)
    assert [one.pid for one in end_order([reward, worker, trainer, rank])] == [12, 13, 10, 15]


def test_what_cannot_be_ended_is_reported_in_time() -> None:
    immortal = proc(2**22 + 1, 1)
    ending = Ending(lambda: [immortal], deadline=10.0)
    assert not ending.step(9.0)
    assert not ending.step(10.0)
    assert not ending.step(10.0 + KILL_LIMIT_S - 0.1)
    assert ending.step(10.0 + KILL_LIMIT_S)
    assert ending.result() == ((), (immortal.pid,))


SEGMENTS = """
import signal, sys, time
from multiprocessing import resource_tracker, shared_memory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ours = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.unregister(ours._name, "shared_memory")  # it would be killed too, sometimes after it has cleaned up
with open("/dev/shm/" + sys.argv[1], "w+b") as file:
    import mmap
    file.write(b"x" * 4096)
    file.flush()
    theirs = mmap.mmap(file.fileno(), 4096)
    print(ours.name, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("shared", [False, True])
def test_a_killed_process_leaves_no_shared_memory(tmp_path: Path, shared: bool) -> None:
    """Nor takes away what others use, or a file that somebody gave a name."""
    named = Path("/dev/shm", f"data-of-a-user-{os.getpid()}")
    argv = [sys.executable, "-c", SEGMENTS, named.name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        segment = Path("/dev/shm", process.stdout.readline().strip())
        assert segment.name.startswith("psm_")
        reader = shared_memory.SharedMemory(segment.name) if shared else None
        try:
            end_run_processes(lambda: [p for p in read_table().values() if p.session == process.pid and p.alive], 0.2)
            assert process.poll() is not None
            assert segment.exists() is shared
            assert named.exists()
        finally:
            named.unlink()
            if reader is not None:
                reader.close()
                reader.unlink()


def test_a_stopped_process_hears_of_term(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    found = read_proc(child.pid)
    assert found is not None
    Ending(lambda: [found], deadline=10.0).step(0.0)
    assert child.wait(5) == -15


def test_the_environment_of_a_child() -> None:
    step = Step(name="vllm", argv=("x",), env={"A": "step", "NO_PROXY": "localhost, example.org"})
    env = child_env({"A": "inherited", "B": "inherited"}, step, "run-1", {"B": "extra"})
    assert (env["A"], env["B"], env["PYTHONUNBUFFERED"]) == ("step", "extra", "1")
    assert (env["ORCHESTRATE_RUN_ID"], env["ORCHESTRATE_STEP"]) == ("run-1", "vllm")
    assert env["NO_PROXY"] == "localhost,example.org,127.0.0.1,::1"
    assert env["no_proxy"] == "127.0.0.1,localhost,::1"


def test_the_log_begins_with_what_was_started(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "import sys; print('out'); print(repr(sys.stdin.read()), file=sys.stderr)")
    child = spawn(Step(name="x", argv=argv), tmp_path / "logs" / "x.log", "run-1")
    assert child.popen.wait(10) == 0
    first, *rest = (tmp_path / "logs" / "x.log").read_text().splitlines()
    assert "start: " in first
    assert sorted(rest) == ["''", "out"]


@pytest.mark.parametrize("argv", [("/no/such/program",), (), ("/etc",), ("x\0y",)])
def test_what_cannot_be_started(tmp_path: Path, argv: tuple[str, ...]) -> None:
    with pytest.raises(SpawnError, match="cannot start"):
        spawn(Step(name="x", argv=argv), tmp_path / "x.log", "run-1")
