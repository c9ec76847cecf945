"""docs/rewards-library.md: every built-in reward function, from its module's docstring and its signature."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rewards.calling.signature import INPUTS
from rewards.calling.targets import BUILTINS, source_file, split_target
from rewards.running.inline import runs_inline

INTRO = """\
# The built-in reward functions

Written by `make docs` from the modules in `rewards/functions/`. `target: NAME` in a recipe names one. A column in
brackets may be missing; params with their defaults go under the function's `params`. A sample whose gold is null gets
no score (None); a gold that cannot be used is an error that names it, never a zero. Inline ones are quick and linear: a
reward server runs them in its own process.
"""
RANGE = re.compile(r"^Range: (.+?)(?=\s*^\w+: |\s+Source: |\n\n|\Z)", re.DOTALL | re.MULTILINE)
FILLED = INPUTS - {"completion_ids"}
"""Parameters that nobody has to provide. Token ids are a column: a trainer sends them, other clients may not."""


@dataclass(frozen=True)
class Entry:
    """One built-in."""

    name: str
    doc: str
    columns: tuple[str, ...]
    """Beside prompts and completions; a column that may be missing is in brackets."""
    params: tuple[str, ...]
    """`name=default`."""
    inline: bool

    @property
    def headline(self) -> str:
        return self.doc.partition("\n")[0]

    @property
    def range(self) -> str:
        found = RANGE.search(self.doc)
        return " ".join(found[1].split()).rstrip(".") if found else ""


def library_page() -> str:
    """Markdown: a table of all, then each with its whole docstring."""
    entries = [_entry(name) for name in sorted(BUILTINS)]
    rows = "".join(f"| {' | '.join(_cells(entry))} |\n" for entry in entries)
    sections = "".join(f"\n## {entry.name}\n\n{entry.doc}\n" for entry in entries)
    return f"{INTRO}\n| name | what | range | columns | params | inline |\n|---|---|---|---|---|---|\n{rows}{sections}"


def _cells(entry: Entry) -> Iterator[str]:
    yield f"[`{entry.name}`](#{entry.name})"
    yield entry.headline.replace("|", "\\|")
    yield entry.range.replace("|", "\\|")
    yield " ".join(entry.columns)
    yield " ".join(f"`{param}`" for param in entry.params).replace("|", "\\|")
    yield "yes" if entry.inline else ""


def _entry(name: str) -> Entry:
    where, function = split_target(name)
    tree = ast.parse(source_file(where).read_bytes())
    definitions = (node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    arguments = next(node.args for node in definitions if node.name == function)
    needed = len(arguments.args) - len(arguments.defaults)
    columns = [(arg.arg, at < needed) for at, arg in enumerate(arguments.args) if arg.arg not in FILLED]
    params = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return Entry(
        name=name,
        doc=ast.get_docstring(tree) or "",
        columns=tuple(f"`{column}`" if must else f"[`{column}`]" for column, must in columns),
        params=tuple(
            f"{param.arg}={ast.unparse(default)}" if default else param.arg
            for param, default in params
            if param.arg not in FILLED
        ),
        inline=runs_inline(name),
    )
