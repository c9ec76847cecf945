"""The inmate that runs the tests. It holds the expected answers, and no code of the completion's.

Verdict, as lines of JSON on a file in memory: {"total": n}, then {"passed": bool, "notes": [...]} per test that was
reached; or {"bad": reason} where the tests themselves are at fault.
"""

import ast
import contextlib
import importlib
import json
import os
import sys
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from rewards.sandbox.channel import Channel
from rewards.sandbox.handing import type_of
from rewards.sandbox.names import asked_of_solution, asks_for_types, modules_used
from rewards.sandbox.remote import LostError, Remote

FILE = "<tests>"
CHECK = "check"


@dataclass(frozen=True)
class Step:
    """Statements that run together. What is no test prepares those that follow."""

    code: CodeType
    is_test: bool


class BadTestsError(Exception):
    """The tests cannot be run by anybody."""


def judge(tests: int, socket: int, verdict: int) -> int:
    """`tests`: {"source": str or list of str, "entry_point": str or None, "limit_s": s, "all": bool} as JSON."""
    with open(tests, "rb") as file:
        task = json.load(file)
    try:
        steps, trees = plan(task["source"], task["entry_point"])
        _say(verdict, {"total": sum(step.is_test for step in steps)})
        remote = Remote(Channel(socket))
        remote.start(task["limit_s"])
        if remote.loaded():
            _run(steps, _namespace(remote, trees), remote, task, verdict)
    except LostError:
        pass  # the tests that were not reached count as failed
    except BadTestsError as error:
        _say(verdict, {"bad": str(error)})
    return 0


def plan(source: str | list[str], entry_point: str | None) -> tuple[list[Step], list[ast.Module]]:
    """The steps, and what they were parsed to. Raises BadTestsError."""
    whole = isinstance(source, list)
    trees = [_parse(text) for text in (source if isinstance(source, list) else [source])]
    if whole:
        steps = [_step(tree.body, is_test=True) for tree in trees]
    else:
        steps = [_step([node], is_test=_asserts(node)) for node in trees[0].body]
        calls = [f"{name}()" for name in _test_functions(trees[0])]
        calls += _test_methods(trees[0])
        if entry_point is not None and CHECK in _functions(trees[0]):
            calls.append(f"{CHECK}({entry_point})")
        elif entry_point is None and not calls and CHECK in _functions(trees[0]):
            raise BadTestsError("the tests define check(candidate), but the row has no `entry_point` to give it")
        added = [_parse(call) for call in calls]
        steps += [_step(tree.body, is_test=True) for tree in added]
        trees += added
    if not any(step.is_test for step in steps):
        raise BadTestsError("the tests hold no assert, no test_ function and no check(candidate) with an entry_point")
    return steps, trees


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text, FILE)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTestsError(f"the tests are no Python: {error}") from None


def _step(body: list[ast.stmt], *, is_test: bool) -> Step:
    return Step(compile(ast.Module(body, []), FILE, "exec"), is_test)


def _asserts(node: ast.stmt) -> bool:
    """A statement that asserts when it runs, as opposed to one that defines a function that would."""
    definition = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return not definition and any(isinstance(part, ast.Assert) for part in ast.walk(node))


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _test_functions(tree: ast.Module) -> list[str]:
    """As pytest finds them, but for those that want a fixture."""
    return [name for name, node in _functions(tree).items() if name.startswith("test_") and not node.args.args]


def _test_methods(tree: ast.Module) -> list[str]:
    """Calls of the tests in classes: unittest's, and pytest's without a setup of their own."""
    calls = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        names = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
        methods = [name for name in names if name.startswith("test")]
        if any(ast.unparse(base).endswith("TestCase") for base in node.bases):
            calls += [f"{node.name}.setUpClass(), {node.name}({name!r}).debug()" for name in methods]
        elif node.name.startswith("Test") and any(name.startswith("setup") for name in names):
            raise BadTestsError(f"the class {node.name} has a setup, which is run for unittest.TestCase only")
        elif node.name.startswith("Test"):
            calls += [f"{node.name}().{name}()" for name in methods]
    return calls


def _namespace(remote: Remote, trees: list[ast.Module]) -> dict[str, Any]:
    """The namespace of the tests, with the solution's names in it as far as the tests use them. Raises LostError."""
    sys.modules["solution"] = _SolutionModule(remote)
    names: dict[str, Any] = {"__name__": "tests"}
    if asks_for_types(trees):
        names["type"] = type_of
    names |= {name: importlib.import_module(name) for name in modules_used(trees)}
    for name in asked_of_solution(trees):
        with contextlib.suppress(Exception):  # not there, or garbage: a NameError in the test that uses it
            names[name] = remote.get(name)
    return names


class _SolutionModule(ModuleType):
    """`import solution`, and `from solution import f`."""

    def __init__(self, remote: Remote) -> None:
        super().__init__("solution")
        self.__dict__["_remote"] = remote

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.__dict__["_remote"].get(name)
        except KeyError:
            raise AttributeError(name) from None


def _run(steps: list[Step], namespace: dict[str, Any], remote: Remote, task: dict[str, Any], verdict: int) -> None:
    for step in steps:
        remote.start(task["limit_s"])
        passed = _passes(step.code, namespace) and not remote.lost
        if remote.unsupported is not None:  # whatever the tests made of the exception
            raise BadTestsError(remote.unsupported)
        if step.is_test:
            _say(verdict, {"passed": passed, "notes": [] if passed else sorted(remote.notes)})
        # A later test needs what failed to be prepared; a lost solution answers no more.
        if remote.lost or (not passed and not (step.is_test and task["all"])):
            return


def _passes(code: CodeType, namespace: dict[str, Any]) -> bool:
    """Raises BadTestsError."""
    try:
        exec(code, namespace)  # noqa: S102  what this process is for
        return True
    except ImportError as error:
        if error.name == "solution" or hasattr(error, "from_completion"):
            return False
        raise BadTestsError(f"the tests import what is not in the sandbox: {error}") from None
    except BaseException:
        return False


def _say(descriptor: int, line: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(line).encode() + b"\n")
