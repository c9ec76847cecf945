import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rewards.contract import PrepareError
from rewards.functions import code as module
from rewards.functions.code import code
from rewards.functions.code_text import program, read_tests

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is made of Linux namespaces")

ALLOW: dict[str, Any] = {"allow_execution": True}


@pytest.fixture(scope="module", autouse=True)
def sandbox() -> Iterator[None]:
    yield
    for each in module._sandboxes.values():
        each.close()
    module._sandboxes.clear()


def score(completion: str, tests: Any, entry_point: str | None = None, **params: Any) -> float | None:
    (value,) = code(["q"], [completion], [tests], [entry_point], **{**ALLOW, **params})
    return value


HUMANEVAL = "def check(candidate):\n    assert abs(candidate(3) - 9) < 1e-6\n    assert candidate(0) == 0"
STACK = "class Stack:\n def __init__(s): s.v = []\n def push(s, x): s.v.append(x)\n def __len__(s): return len(s.v)"
USES_STACK = "s = Stack(); s.push(3)\nassert len(s) == 1\nassert s.v == [3]\nassert isinstance(s, Stack)"
EXPECTS = "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass"
SQUARE = "def f(x): return x * x"

# completion, tests, entry point
RIGHT: list[tuple[str, Any, str | None]] = [
    (SQUARE, ["assert f(2) == 4", "assert f(-3) == 9"], None),
    (SQUARE, "import math\nx = 2\nassert f(x) == 4\nfor i in range(9):\n    assert math.isclose(f(i), i ** 2)", None),
    (SQUARE, "assert math.isclose(f(3), 9)", None),
    (SQUARE, HUMANEVAL, "f"),
    ("class Solution:\n def square(self, x): return x * x", HUMANEVAL, "Solution().square"),
    (SQUARE, "from solution import f\ndef test_a():\n    assert f(2) == 4\ndef test_b(): assert f(1) == 1", None),
    ("def sum(a, b): return a + b", ["assert sum(1, 2) == 3"], None),
    ("def f(x): x.append(3)", "a = [1]\nf(a)\nassert a == [1, 3]", None),
    ("def f(g, x): return [g(i) for i in x]", ["assert f(lambda v: v * 2, [1, 2]) == [2, 4]"], None),
    ("def f(n): yield from range(n)", ["assert list(f(4)) == [0, 1, 2, 3]", "assert sorted(f(2)) == [0, 1]"], None),
    ("def f(x): raise ValueError('no')", EXPECTS, None),
    (STACK, USES_STACK, None),
    ("from collections import Counter\ndef f(x): return Counter(x)", ["assert f('aab') == {'a': 2, 'b': 1}"], None),
    ("def f(): return (1, {2, 3}, b'4', 10 ** 40, None)", ["assert f() == (1, {2, 3}, b'4', 10 ** 40, None)"], None),
    ("print(int(input()) * 2)", [{"input": "2\n", "output": "4"}, {"input": "5", "output": "10  \n\n"}], None),
    ("if __name__ == '__main__':\n print(1)", '[{"input": "", "output": "1"}]', None),
    ("import sys\nprint(sys.stdin.read())\nsys.exit(0)", {"inputs": ["a\nb"], "outputs": ["a\nb"]}, None),
    (
        "import threading\ndef main(): print(input())\nthreading.Thread(target=main).start()",
        [{"input": "x", "output": "x"}],
        None,
    ),
]


@pytest.mark.parametrize(("completion", "tests", "entry_point"), RIGHT)
def test_right_programs(completion: str, tests: Any, entry_point: str | None) -> None:
    assert score(completion, tests, entry_point) == 1.0


ONE = ["assert f(2) == 4"]
SAME = "class X:\n __eq__ = lambda *a: True\n __ne__ = lambda *a: False\n __sub__ = __rsub__ = lambda *a: 0\n"

# What a policy tries instead of solving the task. The right answer of f(2) is 4.
HACKS: list[tuple[str, Any, str | None]] = [
    ("", ONE, None),
    ("f = None", ONE, None),
    ("def f(x): return 5", ONE, None),
    ("import os; os._exit(0)", ONE, None),
    ("import os\ndef f(x): os._exit(0)", ONE, None),
    ("raise SystemExit(0)", ONE, None),
    ("import sys\ndef f(x): sys.exit(0)", ONE, None),
    (SAME + "def f(x): return X()", ONE, None),
    (SAME + "def f(x): return [X()]", ["assert f(2) == [4]"], None),
    (SAME.replace("class X:", "class X(int):") + "def f(x): return X(5)", ONE, None),
    (SAME + "def f(x): return X()", "def check(candidate):\n    assert abs(candidate(2) - 4) < 1e-6", "f"),
    ("abs = lambda x: 0\ndef f(x): return 5", "def check(candidate):\n    assert abs(candidate(2) - 4) < 1", "f"),
    ("class math:\n isclose = lambda *a: True\ndef f(x): return 5", ["assert math.isclose(f(2), 4)"], None),
    ("import builtins\nbuiltins.AssertionError = Warning\nbuiltins.abs = lambda x: 0\ndef f(x): return 5", ONE, None),
    ("def check(candidate): pass\ndef f(x): return 5", "def check(candidate):\n    assert candidate(2) == 4", "f"),
    ("def test_a(): pass\ndef f(x): return 5", "def test_a():\n    assert f(2) == 4", None),
    ("import gc\ndef f(x): return [o for o in gc.get_objects() if o == 4 or o == '4']", ONE, None),
    ("import sys\ndef f(x):\n sys._getframe(1).f_locals.clear()\n return 5", ONE, None),
    # forge messages to the judge, and verdicts on whatever descriptor there is
    (
        'import os\nfor fd in range(64):\n try: os.write(fd, b\'{"total": 1}\\n{"passed": true}\\n\')\n'
        " except OSError: pass\ndef f(x): return 5",
        ONE,
        None,
    ),
    ("from rewards.sandbox import codec\ncodec.encode = lambda *a: ['object', 4]\ndef f(x): return 5", ONE, None),
    ("from rewards.sandbox import codec\ncodec.encode = lambda *a: ['type', 'eval']\ndef f(x): return 5", ONE, None),
    ("print(4)", [{"input": "1", "output": "1"}, {"input": "4", "output": "4"}], None),
    ("print(4); raise ValueError", [{"input": "", "output": "4"}], None),
    ("import os; print(open('/proc/self/environ').read())", [{"input": "", "output": "4"}], None),
]


@pytest.mark.faults
@pytest.mark.parametrize(("completion", "tests", "entry_point"), HACKS)
def test_hacks_earn_nothing(completion: str, tests: Any, entry_point: str | None) -> None:
    assert score(completion, tests, entry_point) == 0.0


# Each would harm the machine, or never end.
BOMBS = {
    "fork": "import os\nwhile True: os.fork()",
    "fork_libc": "import ctypes\nif ctypes.CDLL(None).fork() < 0: raise OSError\nwhile True: pass",
    "program": "import subprocess; print(subprocess.run(['/bin/echo', '4'], stdout=-1).stdout)",
    "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()",
    "memory": "x = []\nwhile True: x.append(bytearray(1 << 24))",
    "memory_at_once": "bytearray(1 << 40)",
    "disk": "n = 0\nwhile True:\n n += 1\n with open(str(n), 'wb') as f: f.write(bytes(1 << 22))",
    "output": "while True: print('4' * 100000)",
    "kill_all": "import os\nos.kill(-1, 9)\nos.kill(0, 9)\nos.killpg(0, 9)\nraise SystemExit(1)",
    "kill_parents": "import os\nfor n in range(1, 40000):\n try: os.kill(n, 9)\n except OSError: pass\nraise OSError",
    "recursion": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
    "nesting": "(" * 100000,
    "outlives": "import ctypes\nctypes.CDLL(None).prctl(1, 0)\nimport os\nos.setsid()\nwhile True: pass",
}


@pytest.mark.faults
@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_end_with_their_process(bomb: str) -> None:
    began = time.monotonic()
    assert score(BOMBS[bomb], [{"input": "", "output": "4"}], timeout_s=0.5, memory_mb=256) == 0.0
    assert time.monotonic() - began < 3.0
    assert score(SQUARE, ONE) == 1.0


def test_partial_scores_and_time_limits() -> None:
    assert score(SQUARE, ["assert f(2) == 4", "assert f(2) == 5"]) == 0.0
    assert score(SQUARE, ["assert f(2) == 5", "assert f(2) == 4"], partial=True) == 0.5
    exchanges = [{"input": "3", "output": "3"}, {"input": "", "output": "3"}, {"input": "4", "output": "4"}]
    assert score("x = input()\nprint(x)", exchanges, partial=True) == pytest.approx(2 / 3)
    slow = "def f(x):\n while x > 2: pass\n return x * x"
    began = time.monotonic()
    assert score(slow, ["assert f(2) == 4", "assert f(3) == 9"], partial=True, timeout_s=0.3) == 0.5
    assert score(SQUARE, "while True: pass\nassert f(2) == 4", total_timeout_s=0.5) == 0.0
    assert time.monotonic() - began < 2.5
    assert code(["q"] * 2, [SQUARE] * 2, tests=[None, ONE], **ALLOW) == [None, 1.0]


BAD_TESTS: list[tuple[Any, str | None, str]] = [
    ("assert f(", None, "no Python"),
    ("f(2)", None, "no assert"),
    ("def check(candidate): assert candidate(2)", None, "entry_point"),
    ("import not_there\nassert f(2) == 4", None, "not_there"),
    (["class Node: pass", "assert f(Node()) == 4"], None, "class Node"),
    ("", None, "''"),
    ([], None, r"\[\]"),
    (4, None, "4"),
    ([{"input": "1"}], None, "output"),
    ({"inputs": ["1"], "outputs": []}, None, "one length"),
    ({"inputs": [[1]], "outputs": [2], "fn_name": "f()"}, None, r"f\(\)"),
    ({"inputs": [[1]], "outputs": ["2"]}, None, "stdin"),
]


@pytest.mark.parametrize(("tests", "entry_point", "named"), BAD_TESTS)
def test_tests_that_nobody_can_run_are_an_error(tests: Any, entry_point: str | None, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        score(SQUARE, tests, entry_point)


PROGRAMS = [
    ("a ```python\nx = 1\n``` b ```python\ny\n```", "y"),
    ("```python\nx = 1\n```\nprints\n```\n1\n```", "x = 1"),
    ("```\nx\n```", "x"),
    ("```bash\nls\n```", ""),
    ("```py\nx\ny", "x\ny"),
    ("x = 1", "x = 1"),
    ("<think>```python\nwrong\n```</think>```python\nright\n```", "right"),
    ("<think>```python\nwrong\n```", ""),
]


@pytest.mark.parametrize(("completion", "found"), PROGRAMS)
def test_where_the_program_is(completion: str, found: str) -> None:
    text = completion.replace(" b ```", "\n```").replace("a ```", "a\n```").replace("</think>```", "</think>\n```")
    assert program(text.replace("<think>```", "<think>\n```")) == found


def test_tests_in_python_that_look_like_json() -> None:
    assert read_tests("[x] = [f(2)]\nassert x == 4") != read_tests("[]assert")


def test_nothing_is_run_without_consent() -> None:
    for params in ({}, {"allow_execution": False}, {"allow_execution": "yes"}):
        with pytest.raises(PrepareError, match="allow_execution: true"):
            module.prepare(**params)  # type: ignore[arg-type]
        with pytest.raises(PrepareError, match="allow_execution: true"):
            code(["q"], [SQUARE], [ONE], **params)  # type: ignore[arg-type]
    for wrong in ({"timeout_s": 0}, {"total_timeout_s": float("nan")}, {"memory_mb": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            module.prepare(**{**ALLOW, **wrong})
