"""Children that answer, fail, hang, and leave processes behind; all of them real."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.deep.answers import NoAnswer
from orchestrator.deep.children import Child, ask

ECHO = "import sys; sys.stdout.write(sys.stdin.read())"
LEAVES_ONE = """
import json, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
sys.stdin.read()
if sys.argv[2] == "hang": time.sleep(60)
print(json.dumps("done"))
"""


def child(code: str, *args: str, request: object = None) -> Child:
    return Child(argv=(sys.executable, "-c", code, *args), env=dict(os.environ), request=request)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_answers_keep_their_order() -> None:
    slow = "import sys, time; time.sleep(0.5); sys.stdout.write(sys.stdin.read())"
    assert ask([child(slow, request={"n": 1}), child(ECHO, request=[2]), child(ECHO, request="3")], 20) == [
        {"n": 1},
        [2],
        "3",
    ]


def test_more_than_a_pipe_holds_blocks_nobody() -> None:
    large = "x" * 1_000_000
    noisy = "import sys; sys.stderr.write('y' * 1_000_000); sys.stdout.write(sys.stdin.read())"
    assert ask([child(noisy, request=large)], 20) == [large]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('no such thing')", ("exited with code 1", "no such thing")),
        ("import os; os.kill(os.getpid(), 9)", ("was killed by signal 9",)),
        ("print('not JSON')", ("without an answer",)),
    ],
)
def test_a_child_that_fails_is_told_with_its_last_lines(code: str, words: tuple[str, ...]) -> None:
    (answer,) = ask([child(code)], 20)
    assert isinstance(answer, NoAnswer)
    assert all(word in answer.problem for word in words)


def test_a_program_that_is_not_there() -> None:
    (answer,) = ask([Child(argv=("/no/such/python",), env={}, request=None)], 20)
    assert isinstance(answer, NoAnswer)
    assert "cannot be started" in answer.problem


@pytest.mark.parametrize("how", ["hang", "end"])
def test_nothing_is_left_of_what_a_child_started(tmp_path: Path, how: str) -> None:
    begun = time.monotonic()
    (answer,) = ask([child(LEAVES_ONE, str(tmp_path / "pid"), how)], 2)
    assert time.monotonic() - begun < 8
    assert not is_running(int((tmp_path / "pid").read_text()))
    assert answer == (NoAnswer(problem="no answer within 2 s") if how == "hang" else "done")


def test_a_signal_ends_the_children_first(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom orchestrator.deep.children import Child, ask\n"
        "ask([Child(argv=tuple(sys.argv[1:]), env=dict(os.environ), request=None)], 60)"
    )
    leaves_one = (sys.executable, "-c", LEAVES_ONE, str(tmp_path / "pid"), "hang")
    asking = subprocess.Popen([sys.executable, "-c", program, *leaves_one])
    deadline = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    asking.send_signal(signal.SIGTERM)
    assert asking.wait(10) == 128 + signal.SIGTERM
    assert not is_running(int((tmp_path / "pid").read_text()))
