"""`python -m orchestrator.ruledocs [--check]`: docs/rules/ from the rules' docstrings; --check fails on drift."""

import sys
from pathlib import Path

from orchestrator.render.rules import listing, page
from orchestrator.rules import RULES

DOCS = Path(__file__).resolve().parent.parent / "docs" / "rules"


def pages() -> dict[Path, str]:
    """Every file of docs/rules/ and what it must hold."""
    intro = "`orchestrate rules` prints this list, `orchestrate rules CODE` a page."
    index = f"# Rules\n\n{intro}\n\n```\n{listing(RULES)}\n```\n"
    return {DOCS / "README.md": index} | {DOCS / f"{rule.code}.md": page(rule) for rule in RULES}


def main() -> int:
    wanted = pages()
    if "--check" in sys.argv[1:]:
        drifted = [p.name for p, text in wanted.items() if not p.is_file() or p.read_text(encoding="utf-8") != text]
        extra = [p.name for p in DOCS.glob("*.md") if p not in wanted]
        if drifted or extra:
            print(
                f"docs/rules/ differs from the docstrings: {sorted(drifted + extra)}; run: make docs", file=sys.stderr
            )
        return 1 if drifted or extra else 0
    DOCS.mkdir(parents=True, exist_ok=True)
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
