"""Names of reward functions: what a target means and in which file it lives. Imports no user code."""

import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

BUILTINS: dict[str, str] = {
    "accuracy": "rewards.functions.accuracy:accuracy",
    "code": "rewards.functions.code:code",
    "dapo": "rewards.functions.dapo:dapo",
    "exact_match": "rewards.functions.exact_match:exact_match",
    "example_coding": "rewards.functions.example_coding:example_coding",
    "example_math": "rewards.functions.example_math:example_math",
    "example_safety": "rewards.functions.example_safety:example_safety",
    "format": "rewards.functions.format:format",
    "json_schema": "rewards.functions.json_schema:json_schema",
    "length": "rewards.functions.length:length",
    "math_verifier": "rewards.functions.math_verifier:math_verifier",
    "multiple_choice": "rewards.functions.multiple_choice:multiple_choice",
    "reasoning_gym": "rewards.functions.reasoning_gym:reasoning_gym",
    "regex": "rewards.functions.regex:regex",
    "remote": "rewards.functions.remote:remote",
    "repetition_penalty": "rewards.functions.repetition_penalty:repetition_penalty",
    "reward_model": "rewards.functions.reward_model:reward_model",
    "soft_overlong": "rewards.functions.soft_overlong:soft_overlong",
    "tags": "rewards.functions.tags:tags",
    "token_f1": "rewards.functions.token_f1:token_f1",
}

HOOKS: dict[str, str] = {
    "group_norm": "rewards.hooks.group_norm:group_norm",
}
"""Built-in post-process hooks."""


class LoadError(Exception):
    """A target that names nothing usable. The message says what, where and, when it can, what was meant."""


def near(name: str, known: Iterable[str]) -> str:
    """A hint to append to an error: the nearest known names, or all of a few."""
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f" (did you mean {' or '.join(close)}?)"
    return f" (there is: {', '.join(names[:8])})" if names else ""


def split_target(target: str) -> tuple[str, str]:
    """(`package.module` or `file.py`, function name); bare names are built-ins. Raises LoadError."""
    full = target if ":" in target else BUILTINS.get(target) or HOOKS.get(target)
    if full is None:
        hint = "; write package.module:name or file.py:name, or a built-in"
        raise LoadError(
            f"{target!r} is not a built-in reward function or hook{hint}{near(target, {**BUILTINS, **HOOKS})}"
        )
    where, _, name = full.rpartition(":")
    if not where or not name.isidentifier():
        raise LoadError(f"{target!r} is not of the form package.module:name or file.py:name")
    return where, name


def is_file(where: str) -> bool:
    """Whether the first part of a target is a path, not a module."""
    return where.endswith(".py")


def is_builtin(target: str) -> bool:
    """Whether a target is one of ours: trusted, and quick enough to run without a time limit."""
    return any(target in table or target in table.values() for table in (BUILTINS, HOOKS))


def existing_file(where: str) -> Path:
    """The absolute path of a file target, relative to the working directory. Raises LoadError."""
    path = Path(where).expanduser().absolute()
    if not path.is_file():
        beside = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise LoadError(f"no file {path}{near(path.name, beside)}")
    return path


def source_file(where: str) -> Path:
    """The source file of a target's first part, found without importing anything. Raises LoadError.

    `importlib.util.find_spec("a.b")` would import `a`; so the top package is found and the rest walked down by path.
    """
    if is_file(where):
        return existing_file(where)
    top, *rest = where.split(".")
    spec = _top_spec(top)
    if spec is None:
        raise LoadError(f"no module {top!r} on the path{near(top, _top_level_names())}")
    for part in rest:
        folders = list(spec.submodule_search_locations or ())
        parent, spec = spec.name, PathFinder.find_spec(f"{spec.name}.{part}", folders)
        if spec is None:
            raise LoadError(f"no module {part!r} in {parent}{near(part, _module_names(folders))}")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise LoadError(f"{where} has no Python source file to read")
    return Path(spec.origin)


def _top_spec(top: str) -> ModuleSpec | None:
    """Spec of a top-level module; the working directory is looked at last, as when it is loaded."""
    try:
        spec = find_spec(top)
    except ValueError:  # __main__ and the like: in sys.modules without a spec
        spec = None
    return spec or PathFinder.find_spec(top, [os.getcwd()])


def _top_level_names() -> set[str]:
    return set(_module_names([*sys.path, os.getcwd()]))


def _module_names(folders: Iterable[str]) -> list[str]:
    entries = [p for folder in folders if os.path.isdir(folder) for p in Path(folder).iterdir()]
    return [p.stem for p in entries if p.suffix == ".py" or (p.is_dir() and p.name.isidentifier())]
