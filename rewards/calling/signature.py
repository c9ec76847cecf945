"""What a reward function asks for, read from its source (nothing is imported) or from the loaded object."""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.calling.post_process import HOOK_INPUTS
from rewards.calling.shapes import CONVENTIONS, recognise
from rewards.calling.targets import LoadError, is_builtin, near, source_file, split_target
from rewards.contract import Shape

INPUTS = frozenset(
    {
        "prompts",
        "completions",
        "completion_ids",
        "trainer_state",
        "log_extra",
        "log_metric",
        "statuses",
        "group_ids",
        "evaluation",
    }
)
"""Parameters that TRL or we fill ourselves: never data columns."""

REEXPORT_DEPTH = 4  # `from .x import f` is followed this often; deeper chains are loops or obfuscation


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Data columns and shape of one reward function."""

    required: tuple[str, ...]
    """Columns without which it cannot be called."""
    optional: tuple[str, ...]
    """Columns with a default."""
    accepts_kwargs: bool
    is_async: bool
    path: Path | None
    line: int
    parameters: tuple[str, ...] = ()
    """Every parameter name, also those that are no columns."""
    needs_completion_ids: bool = False
    """It cannot be called without token ids, which the trainer sends and the data do not have."""
    shape: Shape | None = None
    """The calling convention that was asked for, or that the parameters show; None: neither."""
    exact: bool = True
    """False when the source cannot tell (decorators, the result of a call, a star import): nothing is required then."""

    def accepts(self, name: str) -> bool:
        return self.accepts_kwargs or name in self.parameters

    def takes_param(self, name: str) -> bool:
        """Whether a recipe may give it in `params`: functions that are called with `args` find it there."""
        return self.shape in ("vime_sample", "vime_group", "post_process") or self.accepts(name)

    @property
    def takes_rewards(self) -> bool:
        """Whether it can be a post-process hook: whole groups are handed to it, as samples or as rewards."""
        return self.parameters[1:2] == ("samples",) or "rewards" in self.parameters or not self.exact

    @property
    def by_name(self) -> tuple[str, ...]:
        """Parameters that are given by keyword."""
        return self.parameters[len(CONVENTIONS[self.shape].positional) if self.shape else 0 :]

    @property
    def wants_completion_ids(self) -> bool:
        """Whether it names them, or gets samples, which hold them."""
        gets_samples = self.shape in ("vime_sample", "vime_group")
        gets_samples |= self.shape == "post_process" and self.parameters[1:2] == ("samples",)
        return gets_samples or "completion_ids" in self.parameters


def unknown_params(target: str, params: Iterable[str], signature: Signature) -> list[str]:
    """Params that the function has no parameter for. A built-in's **kwargs take columns, never a misspelt param."""
    if is_builtin(target):
        return [name for name in params if name not in signature.parameters or name in INPUTS]
    return [name for name in params if not signature.takes_param(name)]


def read_signature(target: str, params: Iterable[str] = (), shape: Shape | None = None) -> Signature:
    """Read the signature of `target` by ast; `params` are the keywords that the recipe binds. Raises LoadError."""
    where, name = split_target(target)
    return _read(source_file(where), name, _Asked(frozenset(params), shape), REEXPORT_DEPTH)


def signature_of(function: Callable[..., Any], params: Iterable[str] = (), shape: Shape | None = None) -> Signature:
    """The same from the loaded function. Raises LoadError for what cannot be called by keyword."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise LoadError(f"{function!r} has no readable signature: {error}") from error
    named = [(p.name, p.default is p.empty) for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    code = getattr(inspect.unwrap(function), "__code__", None)
    call = getattr(function, "__call__", None)  # noqa: B004  an object may have an async __call__
    return _classify(
        named,
        _Asked(frozenset(params), shape),
        positional_only=[p.name for p in found if p.kind is p.POSITIONAL_ONLY],
        accepts_kwargs=any(p.kind is p.VAR_KEYWORD for p in found),
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call),
        path=Path(code.co_filename) if code else None,
        line=code.co_firstlineno if code else 0,
    )


@dataclass(frozen=True)
class _Asked:
    """What the recipe says about the function: keywords that it binds, and the shape if it names one."""

    params: frozenset[str]
    shape: Shape | None


def _classify(
    named: list[tuple[str, bool]],
    asked: _Asked,
    *,
    positional_only: list[str],
    accepts_kwargs: bool,
    is_async: bool,
    path: Path | None,
    line: int,
    exact: bool = True,
) -> Signature:
    names = tuple(name for name, _ in named)
    shape = asked.shape or (recognise(names, accepts_kwargs=accepts_kwargs) if exact else None)
    by_position = len(CONVENTIONS[shape].positional) if shape else 0
    if by_name := [name for name in positional_only if name not in names[:by_position]]:
        raise LoadError(f"{path}:{line} has positional-only parameters {by_name}: these are given by keyword")
    given = INPUTS | asked.params | (HOOK_INPUTS if shape == "post_process" else frozenset())
    columns = [(name, needed) for name, needed in named[by_position:] if name not in given]
    return Signature(
        required=tuple(name for name, needed in columns if needed),
        optional=tuple(name for name, needed in columns if not needed),
        accepts_kwargs=accepts_kwargs,
        is_async=is_async,
        path=path,
        line=line,
        parameters=names,
        needs_completion_ids=any(name == "completion_ids" and needed for name, needed in named[by_position:]),
        shape=shape,
        exact=exact,
    )


def _read(path: Path, name: str, asked: _Asked, depth: int) -> Signature:
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        raise LoadError(f"{path} is not valid Python: {error}") from error
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error}") from error
    bound = dict(_bindings(tree.body))
    node = bound.get(name) or bound.get("*")
    if node is None:
        raise LoadError(f"{path} has no function {name!r}{near(name, bound)}")
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.decorator_list:
        return _from_definition(node, path, asked)
    if isinstance(node, ast.ImportFrom) and depth > 0 and name in bound:
        return _follow(node, name, path, asked, depth)
    return _classify(
        [],
        asked,
        positional_only=[],
        accepts_kwargs=True,
        is_async=isinstance(node, ast.AsyncFunctionDef),
        path=path,
        line=node.lineno,
        exact=False,
    )


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Every name that the module's top level binds (later wins), looking into if, try and with."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name, node) for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _bindings(node.body)
            yield from _bindings(getattr(node, "orelse", []))


def _from_definition(node: ast.FunctionDef | ast.AsyncFunctionDef, path: Path, asked: _Asked) -> Signature:
    arguments = node.args
    ordered = [*arguments.posonlyargs, *arguments.args]
    needed = len(ordered) - len(arguments.defaults)
    named = [(a.arg, position < needed) for position, a in enumerate(ordered)]
    named += [(a.arg, d is None) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return _classify(
        named,
        asked,
        positional_only=[a.arg for a in arguments.posonlyargs],
        accepts_kwargs=arguments.kwarg is not None,
        is_async=isinstance(node, ast.AsyncFunctionDef),
        path=path,
        line=node.lineno,
    )


def _follow(node: ast.ImportFrom, name: str, path: Path, asked: _Asked, depth: int) -> Signature:
    """The signature behind `from x import name`: relative to this file's folder, or on the path."""
    original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
    if node.level == 0:
        return _read(source_file(node.module or ""), original, asked, depth - 1)
    folder = path.parents[node.level - 1]
    base = folder.joinpath(*(node.module or "").split(".")) if node.module else folder
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file() and candidate != path:
            return _read(candidate, original, asked, depth - 1)
    raise LoadError(f"{path}:{node.lineno} imports {name!r} from a module that is not there ({base})")
