"""From a target to the function it names. This is the one place that runs user code at import."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rewards.calling.foreign_modules import offer_sample_class
from rewards.calling.signature import Signature, read_signature
from rewards.calling.targets import BUILTINS, LoadError, existing_file, is_file, near, source_file, split_target

__all__ = ["BUILTINS", "LoadError", "Signature", "load", "read_signature", "source_sha256"]

PRIVATE_PREFIX = "_orchestrate_user_"


def load(target: str) -> Callable[..., Any]:
    """Import the function that `target` names. Raises LoadError with near names when it is not there."""
    where, name = split_target(target)
    path = source_file(where)  # first the clear errors: no file, no such module
    module = _load_file(existing_file(where)) if is_file(where) else _load_module(where)
    function = getattr(module, name, None)
    if function is None:
        own = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise LoadError(f"{path} has no function {name!r}{near(name, own)}")
    if not callable(function) or inspect.isclass(function):
        raise LoadError(f"{name!r} in {path} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def source_sha256(function: Callable[..., Any]) -> str | None:
    """SHA-256 of the bytes of the file that defines `function`; None when there is no such file."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:  # an object with __call__: its class has the file
        path = inspect.getsourcefile(type(function))
    if path is None or not os.path.isfile(path):
        return None
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _append_path(folder: str) -> None:
    """Last on the path, so that a user's own `rewards.py` or `json.py` shadows nothing."""
    if folder not in sys.path:
        sys.path.append(folder)


def _load_module(where: str) -> ModuleType:
    _append_path(os.getcwd())
    offer_sample_class()
    try:
        return importlib.import_module(where)
    except BaseException as error:
        raise _import_failed(where, error) from error


def _load_file(path: Path) -> ModuleType:
    """Load a file under a private name; several functions of one file share the module."""
    name = PRIVATE_PREFIX + hashlib.sha256(str(path).encode()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    _append_path(str(path.parent))
    _refuse_other_siblings(path)
    offer_sample_class()
    sys.modules[name] = module  # before it runs: dataclasses and typing look the module up there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _import_failed(str(path), error) from error
    return module


def _refuse_other_siblings(path: Path) -> None:
    """Raises LoadError where the file imports a module that lies beside it, and would get another one of that name.

    Two reward files may each have a `helpers.py`, and an installed package may be called `utils`: the first on the path
    wins, and the function would score with the other's code. The standard library wins on purpose.
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError):
        return  # running it says so, with the line
    for name in sorted(_imported(tree) - sys.stdlib_module_names):
        own = [sibling for sibling in (path.with_name(f"{name}.py"), path.with_name(name)) if sibling.exists()]
        spec = importlib.util.find_spec(name) if own and name not in sys.modules else None
        module = sys.modules.get(name)
        there = getattr(module, "__file__", None) or (spec.origin if spec else None)
        if own and there and not Path(there).resolve().is_relative_to(path.parent.resolve()):
            raise LoadError(
                f"{path} imports {name}, which would be {there} and not {own[0]}: rename the file beside it"
            )


def _imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def _import_failed(where: str, error: BaseException) -> LoadError:
    """Also for SystemExit: a file that calls sys.exit() at import must not end the server without a word."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    at = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return LoadError(f"importing {where} failed: {type(error).__name__}: {error}{at}")
