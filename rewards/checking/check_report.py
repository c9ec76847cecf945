"""What `reward check` has found out about one function."""

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from rewards.checking.judging import Tried
from rewards.checking.proofs import Proof, has_errors
from rewards.contract import FunctionSpec, Granularity

OK, ERRORS = 0, 2
SHOWN_ROWS = 2  # of the data, in the table


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One made-up completion and what it got."""

    row: str
    completion: str
    score: float | None
    logged: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    target: str
    summary: str
    """Shape, granularity, sync or async; or why the function could not be loaded."""
    proofs: tuple[Proof, ...]
    scores: tuple[Scored, ...] = ()
    called: bool = True
    """False: there was no row to call it with, so that no errors mean nothing."""
    recipe: str = ""
    """YAML to paste; '' where the function did not work."""

    @property
    def exit_code(self) -> int:
        return ERRORS if has_errors(self.proofs) else OK


def table(told: Sequence[Tried]) -> tuple[Scored, ...]:
    """The completions of a row or two, each once: of the user's rows, where there are any."""
    lines: list[Scored] = []
    for tried in told[:1]:
        shown = [row.label for row in tried.rows[: SHOWN_ROWS if tried.real else 1]]
        for place, (row, completion) in enumerate(tried.samples.keys):
            logs = {name: column[place] for name, column in tried.scores.logs.items()}
            logged = "".join(f"  {name}={value}" for name, value in logs.items() if value is not None)
            line = Scored(row=row, completion=completion, score=tried.scores.values[place], logged=logged)
            if row in shown and line not in lines:
                lines.append(line)
    return tuple(lines)


def recipe(spec: FunctionSpec, granularity: Granularity | None) -> str:
    """The function's entry in a recipe, as YAML; `granularity` is what was found out."""
    entry = {
        "name": spec.name,
        "target": spec.target,
        "shape": spec.shape,
        "granularity": spec.granularity or granularity,
        "key": spec.key,
        "eval_key": spec.eval_key,
        "params": dict(spec.params),
    }
    functions = [{name: value for name, value in entry.items() if value not in (None, {})}]
    return str(yaml.safe_dump({"reward": {"functions": functions}}, sort_keys=False, allow_unicode=True)).rstrip()
