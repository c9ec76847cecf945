"""`python -m orchestrator.docs [--check]`: writes the pages that come from docstrings; --check fails on drift.

docs/rules/ from the rules' docstrings, docs/recipe.md from the schema's.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from orchestrator.render.rules import listing, page
from orchestrator.rules import RULES

ROOT = Path(__file__).resolve().parent.parent
RULE_PAGES = ROOT / "docs" / "rules"


def pages() -> dict[Path, str]:
    """Every generated file and what it must hold."""
    intro = "`orchestrate rules` prints this list, `orchestrate rules CODE` a page."
    index = f"# Rules\n\n{intro}\n\n```\n{listing(RULES)}\n```\n"
    rules = {RULE_PAGES / "README.md": index} | {RULE_PAGES / f"{rule.code}.md": page(rule) for rule in RULES}
    return rules | {ROOT / "docs" / "recipe.md": recipe_page()}


def recipe_page() -> str:
    """Every key of a recipe: type, default, meaning; from orchestrator/schema.py, read by ast for its docstrings."""
    tree = ast.parse((ROOT / "orchestrator" / "schema.py").read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    intro = (
        "# The recipe\n\n"
        "Every key that exists, with its type and the schema's default; the groups in `conf/` set their own.\n"
        "`_s` is seconds, `_length` and `_len` are tokens. Written by `make docs` from `orchestrator/schema.py`.\n"
    )
    return intro + "".join(_section(node) for node in [classes[-1], *classes[:-1]])


def _section(node: ast.ClassDef) -> str:
    rows = "".join(f"| `{name}` | {kind} | {default} | {meaning} |\n" for name, kind, default, meaning in _fields(node))
    title = node.name.removesuffix("Config")
    return f"\n## {title}\n\n{ast.get_docstring(node)}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}"


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str, str]]:
    for item, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            doc = following.value.value if _is_docstring(following) else ""  # type: ignore[union-attr]
            kind = ast.unparse(item.annotation).replace("|", "\\|")
            yield item.target.id, f"`{kind}`", _default(item.value), " ".join(str(doc).split()).replace("|", "\\|")


def _is_docstring(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _default(value: ast.expr | None) -> str:
    match value:
        case ast.Call(func=ast.Name(id="choice"), args=words):
            return " ".join(f"**{ast.unparse(w)}**" if i == 0 else ast.unparse(w) for i, w in enumerate(words))
        case ast.Call(keywords=keywords):
            return next((f"`{ast.unparse(k.value)}`" for k in keywords if k.arg == "default"), "")
        case None:
            return ""
    return f"`{ast.unparse(value)}`"


def main() -> int:
    wanted = pages()
    if "--check" in sys.argv[1:]:
        drifted = [p.name for p, text in wanted.items() if not p.is_file() or p.read_text(encoding="utf-8") != text]
        extra = [p.name for p in RULE_PAGES.glob("*.md") if p not in wanted]
        if drifted or extra:
            print(
                f"generated docs differ from the docstrings: {sorted(drifted + extra)}; run: make docs", file=sys.stderr
            )
        return 1 if drifted or extra else 0
    RULE_PAGES.mkdir(parents=True, exist_ok=True)
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
