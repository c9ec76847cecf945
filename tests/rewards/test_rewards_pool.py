import asyncio
import itertools
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rewards.batch import Batch
from rewards.contract import FunctionSpec, Granularity
from rewards.running.pool import Pool
from rewards.scoring import FunctionScores

pytestmark = pytest.mark.faults

UserFile = Callable[..., str]

SOURCE = """
import asyncio, ctypes, os, re, sys, time
def stuck(text):
    if text == "sleep": time.sleep(10)
    if text == "c-loop": ctypes.PyDLL(None).sleep(10)
    if text == "regex": re.match("(a+)+$", "a" * 64 + "b")
def number(completions, **kwargs):
    print("noise", input) ; sys.stdout.write("x" * 100000); os.write(1, b"more noise")
    (text,) = completions
    stuck(text)
    if text == "die": os.kill(os.getpid(), 9)
    if text == "flaky" and not os.path.exists("flag"): open("flag", "w").close(); os.kill(os.getpid(), 9)
    return [float(text) if text.isdigit() else -1.0]
async def judged(completions, **kwargs):
    (text,) = completions
    await asyncio.sleep(0.05)
    stuck(text)
    await asyncio.sleep(10 if text == "await" else 0.3)
    return [float(text) if text.isdigit() else -1.0]
async def nested(completions, **kwargs): return await asyncio.create_task(judged(completions))
def slowly(completions, **kwargs): time.sleep(0.02); return [float(c) for c in completions]
def calls(completions, **kwargs):
    with open("calls", "a") as f: f.write(completions[0] + "\\n")
    time.sleep(0.05); return [1.0]
def whole(completions, **kwargs):
    for text in completions: stuck(text)
    return [float(text) for text in completions]
async def whole_async(completions, **kwargs): return whole(completions)
def cheap(completions, **kwargs):
    for text in completions: stuck(text)
    return [float(len(text)) for text in completions]
def received(completions, big, **kwargs):
    return [float(ord(text) == 0xD800 and number == 2**70) for text, number in zip(completions, big)]
def not_a_number(completions, given, **kwargs): return [float(value != value) for value in given]
def two(completions, **kwargs): return [{"train": 1.0, "held_out": 2.0}] * len(completions)
def children(completions, **kwargs):
    import subprocess
    subprocess.Popen(["sleep", "4242"]); time.sleep(10)
def reads(completions, **kwargs): return [float(len(sys.stdin.read())), float(os.environ["OMP_NUM_THREADS"])]
"""


def with_pool(
    path: str,
    name: str,
    body: Callable[[Pool], Awaitable[None]],
    *,
    workers: int = 1,
    timeout_s: float = 1.0,
    granularity: Granularity = "sample",
) -> None:
    async def run() -> None:
        spec = FunctionSpec(name, f"{path}:{name}", granularity=granularity)
        pool = Pool([spec], workers=workers, timeout_s=timeout_s)
        await pool.start()
        try:
            await asyncio.wait_for(body(pool), 30)
        finally:
            await pool.close()

    asyncio.run(run())


def batch(texts: list[str]) -> Batch:
    return Batch(prompts=[""] * len(texts), completions=texts)


async def scores(pool: Pool, texts: list[str]) -> FunctionScores:
    return next(iter((await pool.score(batch(texts))).values()))


@pytest.mark.parametrize(
    ("name", "stuck", "workers", "limit_s"),
    [
        ("number", "sleep", 1, 2.0),
        ("number", "c-loop", 2, 1.0),
        ("number", "regex", 1, 1.0),
        ("judged", "await", 1, 1.0),
        ("judged", "sleep", 1, 1.0),
        ("judged", "c-loop", 2, 1.0),
    ],
)
def test_one_of_64_exceeds_the_limit(user_file: UserFile, name: str, stuck: str, workers: int, limit_s: float) -> None:
    async def body(pool: Pool) -> None:
        began = time.monotonic()
        got = await scores(pool, [stuck if i == 20 else str(i) for i in range(64)])
        assert time.monotonic() - began < 3.0
        assert got.values == [None if i == 20 else float(i) for i in range(64)]
        (failure,) = got.failures
        assert (failure.kind, failure.index) == ("timeout", 20)
        assert f"{name} exceeded its time limit of {limit_s:g} s on sample 20" in failure.message

    with_pool(user_file(SOURCE), name, body, workers=workers, timeout_s=limit_s)


@pytest.mark.parametrize(("name", "stuck"), [("whole", "sleep"), ("whole", "regex"), ("whole_async", "c-loop")])
def test_a_batch_that_hangs_is_one_error_and_the_next_is_served(user_file: UserFile, name: str, stuck: str) -> None:
    async def body(pool: Pool) -> None:
        (before,) = pool.pids
        got = await scores(pool, ["1", stuck, "3"])
        assert (got.values, got.failed) == ([None] * 3, {0, 1, 2})
        assert [(f.kind, f.index) for f in got.failures] == [("timeout", None)]
        assert (await scores(pool, ["1", "2"])).values == [1.0, 2.0]
        assert pool.pids != [before]

    with_pool(user_file(SOURCE), name, body, timeout_s=0.5, granularity="batch")


def test_requests_that_share_a_message_do_not_share_its_blame(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        await scores(pool, ["a"] * 200)  # from here the pool knows that units are cheap, and puts jobs together
        texts = [["a"], ["bb", "regex", "ccc"], ["dddd"]]
        got = await asyncio.gather(*(scores(pool, each) for each in texts))
        assert [g.values for g in got] == [[1.0], [2.0, None, 3.0], [4.0]]
        assert [[(f.kind, f.index) for f in g.failures] for g in got] == [[], [("timeout", 1)], []]

    with_pool(user_file(SOURCE), "cheap", body, timeout_s=0.5)


def test_a_client_that_has_gone_disturbs_nobody(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        gone = asyncio.create_task(scores(pool, [str(i) for i in range(20)]))
        await asyncio.sleep(0.05)
        gone.cancel()
        assert (await scores(pool, ["7", "8"])).values == [7.0, 8.0]

    with_pool(user_file(SOURCE), "slowly", body)


def test_commands_keep_what_json_loses(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        columns = {"big": [2**70], "given": [float("nan")]}
        result = await pool.score(Batch(prompts=[""], completions=["\ud800"], columns=columns))
        assert next(iter(result.values())).values == [1.0]

    for name in ("received", "not_a_number"):
        with_pool(user_file(SOURCE), name, body, granularity="batch")


def test_an_evaluation_counts_by_its_own_key(user_file: UserFile) -> None:
    async def run() -> None:
        pool = Pool(
            [FunctionSpec("two", f"{user_file(SOURCE)}:two", key="train", eval_key="held_out")], workers=1, timeout_s=1
        )
        await pool.start()
        for evaluation, reward in ((False, 1.0), (True, 2.0)):
            asked = Batch(prompts=[""], completions=[""], evaluation=evaluation)
            assert (await pool.score(asked))["two"].values == [reward]
        await pool.close()

    asyncio.run(run())


def test_a_unit_that_kills_its_worker_is_tried_twice(user_file: UserFile, in_tmp: Path) -> None:
    async def body(pool: Pool) -> None:
        got = await scores(pool, ["1", "flaky", "2", "die", "3"])
        assert got.values == [1.0, -1.0, 2.0, None, 3.0]
        (failure,) = got.failures
        assert (failure.kind, failure.index) == ("crash", 3)
        assert "signal 9" in failure.message

    with_pool(user_file(SOURCE), "number", body)


def test_kill_9_of_workers_loses_nothing(user_file: UserFile, in_tmp: Path) -> None:
    async def body(pool: Pool) -> None:
        task = asyncio.create_task(scores(pool, [str(i) for i in range(40)]))
        for _ in range(2):
            await asyncio.sleep(0.3)
            os.kill(pool.pids[0], signal.SIGKILL)
        got = await task
        assert got.values == [1.0] * 40
        assert not got.failures
        seen = Path("calls").read_text().split()
        assert set(seen) == {str(i) for i in range(40)}
        assert len(seen) <= 42  # only what was running is called again

    with_pool(user_file(SOURCE), "calls", body, workers=2)


def test_an_idle_worker_that_dies_is_replaced(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        os.kill(pool.pids[0], signal.SIGKILL)
        assert (await scores(pool, ["5"])).values == [5.0]

    with_pool(user_file(SOURCE), "number", body)


def test_an_async_function_that_blocks_in_a_task_of_its_own_is_found(user_file: UserFile) -> None:
    """There the worker cannot say which unit it is at, so each is tried alone."""

    async def body(pool: Pool) -> None:
        got = await scores(pool, ["1", "sleep", "2"])
        assert got.values == [1.0, None, 2.0]
        assert [(f.kind, f.index) for f in got.failures] == [("timeout", 1)]

    with_pool(user_file(SOURCE), "nested", body, timeout_s=0.5)


def test_kill_9_under_async_samples_loses_nothing(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        task = asyncio.create_task(scores(pool, [str(i) for i in range(20)]))
        await asyncio.sleep(0.2)
        os.kill(pool.pids[0], signal.SIGKILL)
        got = await task
        assert (got.values, got.failures) == ([float(i) for i in range(20)], [])

    with_pool(user_file(SOURCE), "judged", body, workers=2)


def test_async_requests_share_a_worker(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        began = time.monotonic()
        got = await asyncio.gather(*(scores(pool, [str(i)]) for i in range(32)))
        assert time.monotonic() - began < 1.2  # 0.35 s each: the first alone, the others together
        assert [g.values for g in got] == [[float(i)] for i in range(32)]

    with_pool(user_file(SOURCE), "judged", body)


def test_concurrent_requests_keep_their_order(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        wanted = [[str(10 * r + i) for i in range(10)] for r in range(4)]
        got = await asyncio.gather(*(scores(pool, texts) for texts in wanted))
        assert [g.values for g in got] == [[float(t) for t in texts] for texts in wanted]

    with_pool(user_file(SOURCE), "slowly", body, workers=2)


def test_the_kill_reaches_what_user_code_started(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        assert (await scores(pool, ["1"])).failures[0].kind == "timeout"
        deadline = time.monotonic() + 1.0  # the signal was sent; the end of a process takes a moment
        while [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x004242" in read(p)]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    with_pool(user_file(SOURCE), "children", body, timeout_s=0.5)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_stdin_is_empty_and_threads_are_one(user_file: UserFile) -> None:
    async def body(pool: Pool) -> None:
        assert (await scores(pool, ["a", "b"])).values == [0.0, 1.0]

    with_pool(user_file(SOURCE), "reads", body, granularity="batch")


def test_a_changed_source_is_not_mixed_in(user_file: UserFile) -> None:
    path = user_file(SOURCE)

    async def body(pool: Pool) -> None:
        Path(path).write_text(SOURCE.replace("-1.0", "-2.0"))
        os.kill(pool.pids[0], signal.SIGKILL)
        failure = (await scores(pool, ["5"])).failures[0]
        assert failure.kind == "unavailable"
        assert "changed while the server ran" in failure.message
        Path(path).write_text(SOURCE)
        while pool.problem():
            await asyncio.sleep(0.1)
        assert (await scores(pool, ["5"])).values == [5.0]

    with_pool(path, "number", body)


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_worker_that_is_slow_to_take_its_first_job_is_not_late(
    user_file: UserFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewards.running.jobs._messages", itertools.count())  # as in a fresh server

    async def body(pool: Pool) -> None:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(0.3, os.kill, pid, signal.SIGCONT)
        scored = await scores(pool, ["1", "2"])
        assert (scored.values, scored.failures) == ([1.0, 2.0], [])

    with_pool(user_file(SOURCE), "number", body)
