"""Runs the Python program of a completion against the row's tests, in a sandbox (rewards.sandbox says how strong).

`tests` is one of these, also as JSON:

- Python source. A top-level statement that asserts, a `test_` function, a test of a `TestCase` and, with the column
  `entry_point`, HumanEval's `check(candidate)` is one test each. Names that the tests do not bind are the program's,
  also a helper that a prompt defines and the tests call (HumanEval 32 and 38): a program may redefine it. Repeat it in
  the tests to prevent that.
- A list of assert strings (MBPP).
- A list of {"input": ..., "output": ...}: a script's stdin and stdout; with "testtype": "functional", a call of
  `entry_point` (LiveCodeBench, its private tests unpacked).
- {"inputs": [...], "outputs": [...]} of texts or lists of lines, or with "fn_name" of arguments and results (APPS).

Source and asserts run in a process of their own, which the program cannot reach. Arguments and results are copies of
plain data: numbers, strings, bytes, dates, what `builtins` and `collections` have for containers, NumPy's arrays. What
else the program makes stays with it, and the tests ask for it over there: calls, attributes, iteration, operators,
`with`, `in`, truth, its exceptions. An object of a class of its own equals no plain value, and arithmetic with plain
data gives no plain value. Tests that hand over an object of another class, or derive a class from one of the
program's, are a ValueError; a program that failed where the tests did with its objects what cannot be done from
outside gets its 0.0, and a warning says so (once for each kind).

Range: 0.0 or 1.0 (all tests passed); with `partial` the share that passed, 0.0 to 1.0.
Source: functional correctness as in HumanEval (arXiv 2107.03374) and APPS (arXiv 2105.09938).
"""

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, PrepareError
from rewards.functions.code_text import Asserts, Exchange, program, read_tests
from rewards.functions.text import text_of
from rewards.sandbox.client import Sandbox
from rewards.sandbox.confine import Limits
from rewards.sandbox.probe import proven_sandbox

PER_SAMPLE = True
CONSENT = {"allow_execution": True}
SELF_TEST = (
    Example(
        completion="```python\ndef add(a, b):\n    return a + b\n```",
        columns={"tests": ["assert add(2, 3) == 5", "assert add('a', 'b') == 'ab'"]},
        params=CONSENT,
        score=1.0,
    ),
    Example(
        completion="```python\nclass Yes(int):\n    __eq__ = lambda *_: True\ndef add(a, b):\n    return Yes()\n```",
        columns={"tests": ["assert add(2, 3) == 5"]},
        params=CONSENT,
        score=0.0,
    ),
)

REFUSAL = (
    "it runs programs that a model wrote, which nobody has read. They run isolated (no network, no files, limits on "
    "time and memory); to allow it, add allow_execution: true to the function's params"
)
LEAST_MEMORY_MB = 128  # the interpreter takes about 40 of it
FILE_BYTES = 16 << 20
SPARE_OUTPUT = 1 << 16  # bytes printed beyond the expected output, after which it cannot be right

_log = logging.getLogger(__name__)
_noted: set[str] = set()
_sandboxes: dict[bool, Sandbox] = {}
_starting = threading.Lock()


def prepare(
    *,
    allow_execution: bool = False,
    partial: bool = False,
    timeout_s: float = 3.0,
    total_timeout_s: float = 8.0,
    memory_mb: int = 512,
    site_packages: bool = False,
) -> None:
    """Start the sandbox and try to break out of it, about 0.5 s. Raises PrepareError; ValueError for bad params."""
    if allow_execution is not True:
        raise PrepareError(REFUSAL)
    _check_params(timeout_s, total_timeout_s, memory_mb)
    _sandbox(memory_mb, site_packages=site_packages)


def code(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    tests: Sequence[Any],
    entry_point: Sequence[str | None] | None = None,
    *,
    allow_execution: bool = False,
    partial: bool = False,
    timeout_s: float = 3.0,
    total_timeout_s: float = 8.0,
    memory_mb: int = 512,
    site_packages: bool = False,
    **kwargs: Any,
) -> list[float | None]:
    """1.0 when all tests pass, else 0.0, or with `partial` the share that passed; None where `tests` is null.

    `timeout_s` is for one test, `total_timeout_s` for a sample (keep it below the reward server's own limit), both of
    wall time; a test that exceeds its time, or ends the program, fails together with those after it (scripts: alone).
    `site_packages` lets programs and tests import what is installed beside this package.
    Raises ValueError for tests that nobody can run, and SandboxError where the sandbox, not the program, failed.
    """
    if allow_execution is not True:
        raise PrepareError(REFUSAL)
    _check_params(timeout_s, total_timeout_s, memory_mb)
    points = entry_point if entry_point is not None else [None] * len(completions)
    task = {"limit_s": timeout_s, "all": partial}
    limits = Limits(memory_mb << 20, total_timeout_s, FILE_BYTES)
    scores: list[float | None] = []
    for completion, gold, point in zip(completions, tests, points, strict=True):
        if gold is None:
            scores.append(None)
            continue
        parsed, source = read_tests(gold, point), program(text_of(completion)).encode(errors="replace")
        sandbox = _sandbox(memory_mb, site_packages=site_packages)
        if isinstance(parsed, Asserts):
            share = _asserts(sandbox, source, {**task, "source": parsed.source, "entry_point": point}, limits)
        else:
            share = _exchanges(sandbox, source, parsed, task, limits)
        scores.append(share if partial else float(share == 1.0))
    return scores


def _asserts(sandbox: Sandbox, source: bytes, task: dict[str, Any], limits: Limits) -> float:
    """Share of the tests that passed."""
    verdict = sandbox.run_tests(source, task, limits)
    if verdict.bad is not None:
        raise ValueError(verdict.bad)
    for note in set(verdict.notes) - _noted:
        _noted.add(note)
        _log.warning("a program failed, perhaps not by its own fault: %s (said once)", note)
    return verdict.passed / verdict.total


def _exchanges(
    sandbox: Sandbox, source: bytes, tests: Sequence[Exchange], task: dict[str, Any], limits: Limits
) -> float:
    """The same; each test is a run of its own. Without `all`, the first that fails is the last."""
    passed, deadline = 0, time.monotonic() + limits.wall_s
    for test in tests:
        left = min(task["limit_s"], deadline - time.monotonic())
        if left <= 0:
            break
        most = 2 * len(test.expected.encode(errors="replace")) + SPARE_OUTPUT
        given = test.given.encode(errors="replace")
        run = sandbox.run_script(source, given, replace(limits, wall_s=left), most_output=most)
        right = run.problem is None and len(run.output) <= most and test.holds(run.output)
        passed += right
        if not right and not task["all"]:
            break
    return passed / len(tests)


def _sandbox(memory_mb: int, *, site_packages: bool) -> Sandbox:
    """The one of this process; a new one, proven again, where it has ended. Raises PrepareError."""
    with _starting:
        sandbox = _sandboxes.get(site_packages)
        if sandbox is None or not sandbox.alive:
            sandbox = _sandboxes[site_packages] = proven_sandbox(memory_mb << 20, site_packages=site_packages)
        return sandbox


def _check_params(timeout_s: float, total_timeout_s: float, memory_mb: int) -> None:
    for name, value in (("timeout_s", timeout_s), ("total_timeout_s", total_timeout_s)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
    if isinstance(memory_mb, bool) or not isinstance(memory_mb, int) or memory_mb < LEAST_MEMORY_MB:
        raise ValueError(f"memory_mb must be a whole number of at least {LEAST_MEMORY_MB}, not {memory_mb!r}")
