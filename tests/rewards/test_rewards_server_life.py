import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from reward_server import StartServer, server_env

from rewards.client import RewardClient, RewardError

UserFile = Callable[..., str]

SOURCE = """
import sys, time
def length(prompts, completions, **kwargs): print("noise"); return [float(len(c)) for c in completions]
def picky(completions):
    return [float("nan") if c == "nan" else time.sleep(9) if c == "sleep" else 1.0 for c in completions]
def naps(completions): time.sleep(1.5); return [1.0] * len(completions)
def counted(completions):
    with open("calls", "a") as f: f.write("x")
    time.sleep(0.1); return [1.0]
def env(completions):
    import os; return [float("MY_TOKEN" in os.environ)] * len(completions)
"""


def test_a_client_that_leaves_ends_its_work(start_server: StartServer, user_file: UserFile, tmp_path: Path) -> None:
    spec = json.dumps({"target": f"{user_file(SOURCE)}:counted", "granularity": "sample"})
    server = start_server("--function", spec)
    with pytest.raises(RewardError, match=r"no complete answer within 0\.5 s"):
        server.client(timeout_s=0.5).score([""] * 40, ["a"] * 40, {})
    time.sleep(1.5)
    assert len((tmp_path / "calls").read_text()) <= 10  # one job of a quarter was under way
    assert server.client().score([""], ["a"], {}).rewards == [1.0]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_server_ends_its_workers(start_server: StartServer, user_file: UserFile, how: int) -> None:
    spec = json.dumps({"target": f"{user_file(SOURCE)}:picky"})
    server = start_server("--function", spec, "--workers", "2")
    errors: list[Exception] = []

    def ask() -> None:
        try:
            server.client(timeout_s=2.0).score([""], ["sleep"], {})
        except RewardError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.3)
    pids = server.workers()
    assert len(pids) == 2
    began = time.monotonic()
    server.process.send_signal(how)
    assert server.process.wait(5) == -how
    while any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_text() for pid in pids):
        assert time.monotonic() - began < 2.0
        time.sleep(0.02)
    assert time.monotonic() - began < 1.5
    thread.join(10)
    assert errors


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--function", "acuracy"], "did you mean accuracy"),
        (["--function", "gone.py:f"], "no file"),
        (["--function", "{"], "not valid JSON"),
        (["--function", '{"target": "accuracy", "wieght": 1}'], "did you mean 'weight'"),
        (["--function", "accuracy", "--function", "accuracy"], "two functions are named 'accuracy'"),
        (["--function", "accuracy", "--token-env", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE"),
        (["--function", "accuracy", "--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--function", "mine.py:f", "--workers", "0"], "needs a worker"),
        (["--function", "mine.py:f"], "No module named 'not_there'"),
        (["--function", "fails.py:f"], "the self-test of f"),
    ],
)
def test_start_errors_exit_3_with_words(
    start_server: StartServer, user_file: UserFile, args: list[str], words: str
) -> None:
    user_file("import not_there")
    user_file(
        "from rewards.contract import Example\ndef f(completions): return [0.5]\n"
        "f.SELF_TEST = (Example(completion='a', score=1.0), Example(completion='b', score=0.0))",
        "fails.py",
    )
    server = start_server(*args, ready=False)
    assert server.process.wait(20) == 3
    time.sleep(0.1)
    text = "".join(server.stderr)
    assert words in text
    assert text.startswith("rewards.server: ")
    assert "Traceback" not in text


def test_a_taken_port_is_said(start_server: StartServer) -> None:
    port = start_server("--function", "format", "--workers", "0").url.rpartition(":")[2]
    second = start_server("--function", "format", "--port", port, ready=False)
    assert second.process.wait(20) == 3


def test_health_says_what_it_waits_for(start_server: StartServer, user_file: UserFile) -> None:
    server = start_server("--function", user_file("import time; time.sleep(1.5)\n" + SOURCE) + ":length", ready=False)
    time.sleep(0.2)
    answer = requests.get(server.url + "/health", timeout=5)
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "starting the workers")
    server.wait_ready()
    assert server.client().score([""], ["abc"], {}).rewards == [3.0]


def test_client_says_when_nobody_is_there() -> None:
    client = RewardClient("http://127.0.0.1:9", timeout_s=1.0)
    began = time.monotonic()
    with pytest.raises(RewardError, match="no connection"):
        client.info()
    assert time.monotonic() - began < 2.0
    assert not client.health()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--function", '{"target": "accuracy", "name": 5}'], "needs a name"),
        (["--function", '{"target": "accuracy", "weight": 1' + "0" * 400 + "}"], "weight must be a finite number"),
        (["--function", "exact_match", "--max-body-mb", "inf"], "must be numbers above 0"),
        (["--function", "exact_match", "--post-process", '{"target": 5}'], "target must be a text"),
    ],
)
def test_flags_that_cannot_be_meant_are_named(flags: list[str], words: str) -> None:
    argv = [sys.executable, "-P", "-m", "rewards.server", "--port", "0", *flags]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=server_env())
    assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (3, True, False), done.stderr
