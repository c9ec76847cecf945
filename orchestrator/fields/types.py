"""Does a YAML value fit a field's annotation? One answer for our dataclasses and for TRL's, read as text."""

import ast
from functools import cache
from typing import Any

_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "dict": (dict,),
    "list": (list,),
}


def accepts(annotation: str, value: Any) -> bool:
    """True when `value` may be given to a field annotated `annotation`, e.g. `float | None` or `list[str]`.

    A class (an enum, a config object) accepts its name or its fields: a string or a mapping. Other forms that are not
    understood accept anything: only the owner of the class can tell.
    """
    return _fits(_parsed(annotation), value)


def readable(annotation: str) -> str:
    """The annotation as a person reads it: no module paths."""
    return ast.unparse(_parsed(annotation))


@cache
def _parsed(annotation: str) -> ast.expr:
    return _without_modules(ast.parse(annotation, mode="eval").body)


def _fits(node: ast.expr, value: Any) -> bool:
    match node:
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _fits(left, value) or _fits(right, value)
        case ast.Constant(value=None):
            return value is None
        case ast.Constant(value=str(forward)):
            return _fits(ast.parse(forward, mode="eval").body, value)
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return value is None or _fits(inner, value)
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=options)):
            return any(_fits(option, value) for option in options)
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            return isinstance(value, list) and all(_fits(inner, item) for item in value)
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, inner])):
            return isinstance(value, dict) and all(_fits(inner, item) for item in value.values())
        case ast.Name(id=name) if name in _PLAIN:
            # bool is an int in Python, but `max_steps: true` is a mistake.
            return isinstance(value, _PLAIN[name]) and (name == "bool" or not isinstance(value, bool))
        case ast.Name(id="Any"):
            return True
        case ast.Name():
            return isinstance(value, (str, dict))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Constant(value=literal)):
            return bool(value == literal)
    return True


class _Shorten(ast.NodeTransformer):
    def visit_Attribute(self, attribute: ast.Attribute) -> ast.expr:
        return ast.Name(id=attribute.attr)


def _without_modules(node: ast.expr) -> ast.expr:
    shortened: ast.expr = _Shorten().visit(node)
    return shortened
