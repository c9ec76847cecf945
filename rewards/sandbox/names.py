"""Which names of the tests are the solution's to give."""

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence


def asked_of_solution(trees: Sequence[ast.Module]) -> list[str]:
    """Names that the tests use and do not bind, in the order of their first use.

    A solution that defines its own `abs` or `math` could pass `abs(f(2) - 4) < 1e-6` with any f. So `math.isclose`
    is the standard library's, and a built-in's name is asked for only where the tests use no other name of a solution
    (`assert sum(10, 15) == 25`).
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    bound = {name for node in nodes for name in _bound(node)}
    used = dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    free = [name for name in used if name not in bound]
    modules = _module_names(nodes)
    own = [name for name in free if not hasattr(builtins, name) and name not in modules]
    if own or "solution" in bound or _imports_solution(nodes):
        return own
    return [name for name in free if hasattr(builtins, name)]


def modules_used(trees: Sequence[ast.Module]) -> list[str]:
    """Modules of the standard library that the tests use without an import, as many data sets do."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    bound = {name for node in nodes for name in _bound(node)}
    return sorted(_module_names(nodes) - bound)


def asks_for_types(trees: Sequence[ast.Module]) -> bool:
    """Whether the tests use `type` only to ask for the class of something."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    uses = sum(isinstance(n, ast.Name) and n.id == "type" for n in nodes)
    calls = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "type"]
    return uses == len(calls) and all(len(call.args) == 1 for call in calls)


def _module_names(nodes: Sequence[ast.AST]) -> set[str]:
    """`math` of `math.sqrt(x)`, unless it is also called or read by itself."""
    bases = [n.value.id for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    loads = [n.id for n in nodes if isinstance(n, ast.Name)]
    return {name for name in bases if name in sys.stdlib_module_names and loads.count(name) == bases.count(name)}


def _imports_solution(nodes: Sequence[ast.AST]) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.module == "solution" for node in nodes)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
