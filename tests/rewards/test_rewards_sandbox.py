import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rewards.batch import Batch
from rewards.contract import FunctionSpec, PrepareError
from rewards.running.pool import Pool
from rewards.running.process import WorkerStartError
from rewards.sandbox import client, probe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is made of Linux namespaces")


@pytest.mark.parametrize(("source", "least"), [(probe.ESCAPES, 6), (probe.PROCESSES, 1)])
def test_the_probe_notices_a_sandbox_that_does_not_hold(source: str, least: int, tmp_path: Path) -> None:
    """The same attempts, outside of any sandbox, as this user; memory is not tried out."""
    (tmp_path / "canary").touch()
    with probe._listener() as port:
        given = json.dumps([port, str(tmp_path / "canary"), 1000])
        source = source.replace('"/planted"', '"planted"')
        run = subprocess.run(
            [sys.executable, "-c", source], input=given, capture_output=True, text=True, cwd=tmp_path, timeout=20
        )
    assert len(json.loads(run.stdout.splitlines()[-1])) >= least


PREPARE = """
import ctypes, os, sys
{before}
from rewards.contract import PrepareError
from rewards.functions.code import SELF_TEST, code, prepare
try:
    prepare(allow_execution=True)
except PrepareError as error:
    print("refused:", error)
else:
    signals = "import os\\nos.kill(0, 9)\\ndef f(x): return x"
    assert code([""], [signals], [["assert f(4) == 4"]], allow_execution=True) == [1.0]
    print(os.getuid(), [code([""], [e.completion], tests=[e.columns["tests"]], **e.params) for e in SELF_TEST])
"""
AS_ROOT_OF_A_NAMESPACE = """
uid = os.getuid()
assert ctypes.CDLL(None).unshare(0x10000000) == 0
open("/proc/self/uid_map", "w").write(f"0 {uid} 1")
"""
NO_MORE_NAMESPACES = AS_ROOT_OF_A_NAMESPACE + 'open("/proc/sys/user/max_user_namespaces", "w").write("0")'
NO_MOUNTS = """
from rewards.sandbox import kernel, syscalls
syscalls.DENIED = {"mount": syscalls.DENIED["mount"]}
syscalls.CLONE = syscalls.CLONE3 = (1 << 20, 1 << 20)
kernel.no_new_privileges()
kernel.install_filter(syscalls.filter_program())
"""
# A user without any privilege: an id other than 0 loses them all at exec.
PLAIN_USER = """
if len(sys.argv) == 1:
    uid, gid = os.getuid(), os.getgid()
    assert ctypes.CDLL(None).unshare(0x10000000) == 0
    open("/proc/self/setgroups", "w").write("deny")
    open("/proc/self/uid_map", "w").write(f"1234 {uid} 1")
    open("/proc/self/gid_map", "w").write(f"1234 {gid} 1")
    os.execv(sys.executable, [sys.executable, "-P", __file__, "again"])
"""


def prepared(before: str, tmp_path: Path) -> str:
    script = tmp_path / "prepare.py"
    script.write_text(PREPARE.format(before=before))
    root = str(Path(__file__).resolve().parents[2])
    run = subprocess.run(
        [sys.executable, "-P", str(script)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=30,
        start_new_session=True,
    )
    return run.stdout + run.stderr


def test_it_refuses_where_namespaces_are_forbidden(tmp_path: Path) -> None:
    said = prepared(NO_MORE_NAMESPACES, tmp_path)
    assert said.startswith("refused: this kernel gives no isolation")
    assert "sysctl -w user.max_user_namespaces=15000" in said
    assert not said.count("Traceback")


def test_it_refuses_where_mounts_are_forbidden(tmp_path: Path) -> None:
    said = prepared(NO_MOUNTS, tmp_path)
    assert said.startswith("refused: this kernel gives no isolation")
    assert "mount" in said
    assert "docker run --security-opt seccomp=unconfined" in said


def test_it_works_for_a_plain_user(tmp_path: Path) -> None:
    assert prepared(PLAIN_USER, tmp_path) == "1234 [[1.0], [0.0]]\n"


DESCRIPTORS = """
import os, sys, tty
from rewards.functions.code import code, prepare
log = {log}
os.write(log, b"so far.")
os.dup2(log, 2)
prepare(allow_execution=True)
forge = '''
import os, sys
for number in range(64):
    for do in (lambda: os.write(number, b"FORGED"), lambda: os.ftruncate(number, 0)):
        try: do()
        except OSError: pass
print("FORGED", file=sys.stderr, flush=True)
def f(x): return x
'''
of_tests = "import os\\nos.write(2, b'FORGED')\\nassert f(1) == 1"
for each in ([{"input": "", "output": ""}], ["assert f(1) == 1"], of_tests):
    code([""], [forge], [each], allow_execution=True)
"""


@pytest.mark.parametrize("kind", ["file", "terminal"])
def test_the_log_of_the_worker_is_out_of_reach(kind: str, tmp_path: Path) -> None:
    ours, theirs = os.openpty() if kind == "terminal" else (-1, os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT))
    try:
        subprocess.run(
            [sys.executable, "-P", "-c", DESCRIPTORS.replace("{log}", str(theirs))],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            pass_fds=[theirs],
            check=True,
            timeout=20,
        )
        said = os.read(ours, 1000) if kind == "terminal" else (tmp_path / "log").read_bytes()
    finally:
        for number in {ours, theirs} - {-1}:
            os.close(number)
    assert said == b"so far."


def test_the_probe_notices_a_descriptor_of_the_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    careless = (
        "import rewards.sandbox.zygote as z; z._open_standard_streams = lambda: None; z._close_all_but = id; main("
    )
    boot = client.BOOT.replace("main(", careless)
    monkeypatch.setattr(client, "INTERPRETER", (*client.INTERPRETER[:-1], boot))
    with pytest.raises(PrepareError, match="descriptor 2 of the outside"):
        probe.proven_sandbox(512 << 20, site_packages=False)


ENDLESS = """
import os, sys
from rewards.functions.code import code
print("up", flush=True)
stubborn = "import ctypes, os, signal\\nfor n in range(1, 65):\\n try: signal.signal(n, signal.SIG_IGN)\\n"
stubborn += " except (OSError, ValueError): pass\\nctypes.CDLL(None).prctl(1, 0)\\nwhile True: pass"
code([""], [stubborn], [["assert f(2) == 4"]], allow_execution=True, timeout_s=60, total_timeout_s=60)
"""


@pytest.mark.parametrize("whole_group", [True, False])
def test_nothing_outlives_the_worker(whole_group: bool) -> None:
    root = str(Path(__file__).resolve().parents[2])
    worker = subprocess.Popen(
        [sys.executable, "-P", "-c", ENDLESS],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert worker.stdout is not None
        worker.stdout.readline()
        family = _wait_for_family(worker.pid, 5)  # the zygote, two supervisors, two inmates
        (os.killpg if whole_group else os.kill)(worker.pid, signal.SIGKILL)
        worker.wait(5)
        _, alive = psutil.wait_procs(family, timeout=3)
        assert alive == []
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(5)


def _wait_for_family(pid: int, count: int) -> list[psutil.Process]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        family = psutil.Process(pid).children(recursive=True)
        if len(family) >= count and sum(p.cpu_times().user for p in family) > 0.3:
            return family
        time.sleep(0.05)
    raise AssertionError("the program was not started")


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.01)


def test_in_a_worker_and_again_after_the_zygote_died() -> None:
    async def run(params: dict[str, Any]) -> None:
        pool = Pool([FunctionSpec("code", "code", params=params)], workers=1, timeout_s=1.0)
        try:
            await pool.start()
            tests = {"tests": [["assert f(2) == 4"]]}
            batch = Batch(prompts=["q"], completions=["while True: pass"], columns=tests)
            failed = (await pool.score(batch))["code"]
            assert [f.kind for f in failed.failures] == ["timeout"]  # the pool's limit is below the function's
            right = Batch(
                prompts=["q"], completions=["def f(x): return x * x"], columns={"tests": [["assert f(2) == 4"]]}
            )
            assert (await pool.score(right))["code"].values == [1.0]
            (zygote,) = psutil.Process(pool.pids[0]).children()
            zygote.kill()
            await _until(lambda: zygote.status() == psutil.STATUS_ZOMBIE)
            assert (await pool.score(right))["code"].values == [1.0]
        finally:
            await pool.close()

    asyncio.run(run({"allow_execution": True, "timeout_s": 5}))
    with pytest.raises(WorkerStartError, match="allow_execution: true"):
        asyncio.run(run({}))
