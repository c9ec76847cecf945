"""Who may import whom (docs/architecture.md), read from the source: the offending line is in the message."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "trl", "vllm", "datasets", "accelerate")
LIGHT = (
    "orchestrator/*.py",
    "orchestrator/facts/*.py",
    "orchestrator/rules/*.py",
    "orchestrator/alarms/*.py",
    "orchestrator/deep/*.py",
    "orchestrator/why/*.py",
    "orchestrator/render/*.py",
    "orchestrator/data/*.py",
    "orchestrator/fields/*.py",
    "orchestrator/ledgers/*.py",
    "orchestrator/supervise/**/*.py",
    "launchers/*.py",
    "rewards/**/*.py",
)
"""Files that `check` and `plan` may load: instant, and on any machine."""


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import in the file, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.lineno, node.module


def offending(patterns: tuple[str, ...], banned: tuple[str, ...]) -> list[str]:
    files = [path for pattern in patterns for path in ROOT.glob(pattern)]
    assert files
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in files
        for line, module in imports(path)
        if any(module == name or module.startswith(f"{name}.") for name in banned)
    ]


def test_what_check_and_plan_load_is_light() -> None:
    assert offending(LIGHT, HEAVY) == []


DIRECTIONS = {
    "rewards/**/*.py": ("orchestrator", "launchers", "conf"),
    "launchers/*.py": (
        "orchestrator.cli",
        "orchestrator.compose",
        "orchestrator.plan",
        "orchestrator.rules",
        "orchestrator.supervise",
        "orchestrator.render",
        "orchestrator.training",
        "orchestrator.generation",
    ),
    "orchestrator/rules/*.py": ("orchestrator.compose", "orchestrator.supervise", "orchestrator.render", "launchers"),
    "orchestrator/alarms/*.py": (
        "orchestrator.compose",
        "orchestrator.supervise",
        "orchestrator.render",
        "orchestrator.rules",
        "orchestrator.training",
        "launchers",
    ),
    "orchestrator/deep/*.py": (
        "orchestrator.cli",
        "orchestrator.render",
        "orchestrator.training",
        "orchestrator.generation",
    ),
    "orchestrator/plan.py": ("orchestrator.supervise", "orchestrator.compose", "orchestrator.render"),
    "orchestrator/supervise/**/*.py": (
        "orchestrator.cli",
        "orchestrator.compose",
        "orchestrator.render",
        "orchestrator.training",
    ),
    "orchestrator/generation/*.py": ("orchestrator.cli", "orchestrator.training", "orchestrator.supervise"),
}


@pytest.mark.parametrize("pattern", DIRECTIONS)
def test_import_direction(pattern: str) -> None:
    assert offending((pattern,), DIRECTIONS[pattern]) == []


def test_few_import_hydra() -> None:
    found = offending(("orchestrator/**/*.py", "launchers/*.py", "rewards/**/*.py"), ("hydra",))
    assert {line.partition(":")[0] for line in found} == {
        f"orchestrator/{name}.py" for name in ("compose", "request", "launch")
    }


def test_only_the_command_line_and_the_job_print() -> None:
    """Everything else returns text: what a user sees is decided in one place."""
    allowed = {"orchestrator/output.py", "orchestrator/docs.py"}
    programs = {
        "main.py",
        "server.py",
        "counts.py",
        "worker.py",
        "commands.py",
        "printing.py",
        "guardian.py",
        "entry.py",
    }
    printing = {
        str(path.relative_to(ROOT))
        for folder in ("orchestrator", "rewards", "launchers")
        for path in (ROOT / folder).rglob("*.py")
        if path.name not in programs
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing <= allowed
