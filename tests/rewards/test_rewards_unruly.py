"""Functions that fork, write where they should not, leave alarms behind or flood stderr: others must not feel it."""

import asyncio
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from reward_server import server_env

from rewards.batch import Batch
from rewards.client import RewardClient
from rewards.contract import FunctionSpec
from rewards.running.output import Output
from rewards.running.pool import Pool
from rewards.scoring import FunctionScores

pytestmark = pytest.mark.faults

UserFile = Callable[..., str]

SOURCE = """
import asyncio, ctypes, json, os, signal, sys, time
def note(text):
    with open("children", "a") as f: f.write(text + "\\n")
def child(text):
    note(str(os.getpid()))
    time.sleep(0.2)
    if text == "exit": sys.exit(0)
    if text == "raise": raise ValueError("in the child")
    return [777.0]
def forks(completions, **kwargs):
    (text,) = completions
    if text in ("exit", "raise", "return") and os.fork() == 0: return child(text)
    time.sleep(0.5 if text == "slow" else 0)
    return [float(len(text))]
async def forks_async(completions, **kwargs):
    (text,) = completions
    if text in ("exit", "raise", "return", "await") and os.fork() == 0:
        if text == "await": note(str(os.getpid())); await asyncio.sleep(0.01)
        return child(text)
    await asyncio.sleep(0.3)
    return [float(len(text))]
def frame(body): return len(body).to_bytes(4, "big") + body
FORGED = {
    "old": {"message": -7, "part": 0, "units": [0], "values": [9.0], "logs": {}, "failures": [], "failed": [],
            "seconds": None},
    "list": [1],
    "empty": {},
}
def writes(completions, **kwargs):
    (text,) = completions
    pipes = [int(n) for n in os.listdir("/proc/self/fd") if int(n) > 2 and os.path.exists("/proc/self/fd/" + n)]
    for fd in [fd for fd in pipes if os.readlink(f"/proc/self/fd/{fd}").startswith(("pipe", "socket"))]:
        body = json.dumps(FORGED[text]).encode() if text in FORGED else b"{nonsense" if text == "nonsense" else None
        try:
            if body is not None: os.write(fd, frame(body))
        except OSError: pass
    if text in FORGED or text == "nonsense": time.sleep(0.3)
    return [float(len(text))]
def orphan(completions, **kwargs):
    if completions[0] == "die":
        if ctypes.CDLL(None).fork() == 0: os.setsid(); time.sleep(8); os._exit(0)
        os._exit(3)
    return [1.0]
async def stubborn(completions, **kwargs):
    if completions[0] == "late":
        try: await asyncio.sleep(20)
        except asyncio.CancelledError: await asyncio.sleep(0.3)
    if completions[0] == "angry":
        try: await asyncio.sleep(20)
        except asyncio.CancelledError: raise ValueError("not me") from None
    return [1.0]
def alarm(completions, **kwargs):
    def strike(*_): raise TimeoutError("left behind")
    if completions[0] == "set":
        signal.signal(signal.SIGALRM, strike); signal.setitimer(signal.ITIMER_REAL, 0.2)
    if completions[0] == "slow": time.sleep(0.5)
    return [1.0]
def talks(completions, **kwargs): print("x" * int(completions[0])); return [1.0]
def long(completions, **kwargs): raise ValueError("z" * 10_000_000)
class Mute(Exception):
    def __str__(self): raise RuntimeError("secret")
def mute(completions, **kwargs): raise Mute
"""


def with_pool(
    path: str, name: str, body: Callable[[Pool], Awaitable[None]], *, timeout_s: float = 5.0, workers: int = 1
) -> None:
    async def run() -> None:
        spec = FunctionSpec(name, f"{path}:{name}", granularity="sample")
        pool = Pool([spec], workers=workers, timeout_s=timeout_s)
        await pool.start()
        try:
            await asyncio.wait_for(body(pool), 20)
        finally:
            await pool.close()

    asyncio.run(run())


async def scores(pool: Pool, *texts: str) -> FunctionScores:
    asked = Batch(prompts=[""] * len(texts), completions=list(texts))
    return next(iter((await pool.score(asked)).values()))


@pytest.mark.parametrize("name", ["forks", "forks_async"])
def test_a_forked_child_answers_nobody(
    user_file: UserFile, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def body(pool: Pool) -> None:
        pids = pool.pids
        for text in ("exit", "raise", "return"):
            assert (await scores(pool, text, "x")).values == [float(len(text)), 1.0]
            after = await scores(pool, "slow", "yy")  # the child comes back meanwhile
            assert (after.values, after.failures) == ([4.0, 2.0], [])
        if name == "forks_async":
            assert (await scores(pool, "await")).values == [5.0]
        assert pool.pids == pids
        children = [int(pid) for pid in (tmp_path / "children").read_text().split()]
        assert len(children) >= 3
        assert not [pid for pid in children if is_running(pid)]

    with_pool(user_file(SOURCE), name, body)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_forked_child_ends_also_without_workers(user_file: UserFile) -> None:
    """In a process of its own: a child that went on would run the rest of these tests once more."""
    path = user_file(
        "import os\nfrom rewards.contract import FunctionSpec\nfrom rewards.scoring import Scorer\n"
        "def f(completions):\n    pid = os.fork()\n    if pid == 0: raise SystemExit(3)\n"
        "    return [float(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))]\n"
        "if __name__ == '__main__':\n    scorer = Scorer([FunctionSpec('f', __file__ + ':f')])\n"
        "    print(scorer.score([''], ['']).rewards)\n"
    )
    ran = subprocess.run([sys.executable, path], env=server_env(), capture_output=True, text=True, timeout=20)
    assert (ran.stdout, ran.returncode) == ("[3.0]\n", 0), ran.stderr


@pytest.mark.parametrize("text", ["old", "list", "empty", "nonsense"])
def test_what_is_no_reply_of_the_worker_is_its_death(user_file: UserFile, text: str) -> None:
    async def body(pool: Pool) -> None:
        got = await scores(pool, "a", text, "bbb")
        assert got.values == [1.0, None, 3.0]
        (failure,) = got.failures
        assert (failure.kind, failure.index) == ("crash", 1)
        assert "reply" in failure.message
        assert (await scores(pool, "cc")).values == [2.0]

    with_pool(user_file(SOURCE), "writes", body)


def test_a_crash_is_seen_at_once_when_a_child_keeps_the_pipe(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        began = time.monotonic()
        (failure,) = (await scores(pool, "die")).failures
        assert failure.kind == "crash"
        assert "exited with code 3" in failure.message
        assert time.monotonic() - began < 4.0

    with_pool(user_file(SOURCE), "orphan", body, timeout_s=10.0)


def test_a_swallowed_cancellation_is_no_way_past_the_limit(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        got = await scores(pool, "quick", "late", "angry")
        assert got.values == [1.0, None, None]
        assert [(f.kind, f.index) for f in got.failures] == [("timeout", 1), ("timeout", 2)]

    with_pool(user_file(SOURCE), "stubborn", body, timeout_s=0.5)


def test_an_alarm_does_not_outlive_its_call(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        assert (await scores(pool, "set", "slow")).failures == []
        assert (await scores(pool, "set")).values == [1.0]
        assert (await scores(pool, "slow")).values == [1.0]

    with_pool(user_file(SOURCE), "alarm", body)


@pytest.mark.parametrize(
    ("name", "words"), [("long", r"z{4000}\.\.\. \(10000000 characters\)"), ("mute", "raised Mute .*RuntimeError")]
)
def test_messages_of_exceptions_are_short(user_file: UserFile, name: str, words: str) -> None:
    async def body(pool: Pool) -> None:
        pids = pool.pids
        (failure,) = (await scores(pool, "a")).failures
        assert re.search(words, failure.message)
        assert "on sample 0" in failure.message
        assert len(failure.message) < 5000
        assert pool.pids == pids

    with_pool(user_file(SOURCE), name, body)


def test_asyncio_is_not_robbed_of_exit_codes(user_file: UserFile, caplog: pytest.LogCaptureFixture) -> None:
    async def body(pool: Pool) -> None:
        assert (await scores(pool, "1", "2")).values == [1.0, 1.0]

    with caplog.at_level(logging.WARNING, "asyncio"):
        for _ in range(3):
            with_pool(user_file(SOURCE), "talks", body, workers=3)
    assert caplog.messages == []


def test_output_is_dropped_and_counted_when_nobody_reads() -> None:
    reading, writing = os.pipe()
    output = Output(writing, kept_bytes=100_000)
    began = time.monotonic()
    for _ in range(1000):
        output.write(b"x" * 999 + b"\n")
    output.flush(0.1)
    assert time.monotonic() - began < 2.0
    read, dropped = b"", 0
    while read.count(b"x") // 999 * 1000 + dropped < 1_000_000:  # the pytest timeout ends what never adds up
        read += os.read(reading, 65536)
        dropped = sum(map(int, re.findall(rb"(\d+) bytes of output were dropped", read)))
    assert dropped > 0
    assert read.count(b"x") // 999 * 1000 + dropped == 1_000_000
    output.write(b"again\n")
    output.flush(2.0)
    assert os.read(reading, 100).endswith(b"again\n")


def test_a_stderr_that_nobody_reads_stops_nothing(user_file: UserFile, tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-m", "rewards.server", "--port", "0", "--function", f"{user_file(SOURCE)}:talks"]
    server = subprocess.Popen(argv, cwd=tmp_path, env=server_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert server.stdout is not None
        client = RewardClient(server.stdout.readline().decode().strip().rpartition(" ")[2], None, 10.0)
        deadline = time.monotonic() + 20
        while not client.health():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for size in ("10", "300000", "20000000", "10"):
            assert client.score([""], [size], {}).rewards == [1.0]
        assert client.health()
        server.terminate()
        assert server.wait(5) == -15
    finally:
        server.kill()
        server.communicate()
