"""The fields of the recipe's dataclasses as their source states them: with docstrings and lines, read by ast."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "schema.py"


@dataclass(frozen=True, kw_only=True)
class FieldDoc:
    name: str
    annotation: str
    default: ast.expr | None
    meaning: str
    """The docstring below the field, on one line; '' = none."""
    line: int


@dataclass(frozen=True, kw_only=True)
class ClassDoc:
    name: str
    meaning: str
    fields: Mapping[str, FieldDoc]


@cache
def schema_docs() -> Mapping[str, ClassDoc]:
    """Class name -> its documentation, in the order of orchestrator/schema.py: RunConfig stands last."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        node.name: ClassDoc(
            name=node.name, meaning=ast.get_docstring(node) or "", fields={field.name: field for field in _fields(node)}
        )
        for node in classes
    }


def _fields(node: ast.ClassDef) -> Iterator[FieldDoc]:
    for item, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield FieldDoc(
                name=item.target.id,
                annotation=ast.unparse(item.annotation),
                default=item.value,
                meaning=_docstring(following),
                line=item.lineno,
            )


def _docstring(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""
