"""`python -m orchestrator.docs [--check]`: writes the pages that come from docstrings; --check fails on drift.

docs/rules/ from the rules' and the alarms' docstrings, docs/recipe.md from the schema's, docs/rewards-library.md from
the built-in reward functions'.
"""

import ast
import sys
from pathlib import Path

from orchestrator.fields.docs import ClassDoc, FieldDoc, schema_docs
from orchestrator.render.library import library_page
from orchestrator.render.rules import EVERY, listing, page

ROOT = Path(__file__).resolve().parent.parent
RULE_PAGES = ROOT / "docs" / "rules"


def pages() -> dict[Path, str]:
    """Every generated file and what it must hold."""
    intro = "`orchestrate rules` prints this list, `orchestrate rules CODE` a page."
    index = f"# Rules and alarms\n\n{intro}\n\n```\n{listing(EVERY)}\n```\n"
    rules = {RULE_PAGES / "README.md": index} | {RULE_PAGES / f"{rule.code}.md": page(rule) for rule in EVERY}
    return rules | {
        ROOT / "docs" / "recipe.md": recipe_page(),
        ROOT / "docs" / "rewards-library.md": library_page(),
    }


def recipe_page() -> str:
    """Every key of a recipe: type, default, meaning; from orchestrator/schema.py."""
    classes = list(schema_docs().values())
    intro = (
        "# The recipe\n\n"
        "Every key that exists, with its type and the schema's default; the groups in `conf/` set their own.\n"
        "`_s` is seconds, `_length` and `_len` are tokens. Written by `make docs` from `orchestrator/schema.py`.\n"
    )
    return intro + "".join(_section(node) for node in [classes[-1], *classes[:-1]])


def _section(node: ClassDoc) -> str:
    rows = "".join(_row(field) for field in node.fields.values())
    title = node.name.removesuffix("Config")
    return f"\n## {title}\n\n{node.meaning}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}"


def _row(field: FieldDoc) -> str:
    kind, meaning = (text.replace("|", "\\|") for text in (field.annotation, field.meaning))
    return f"| `{field.name}` | `{kind}` | {_default(field.default)} | {meaning} |\n"


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
