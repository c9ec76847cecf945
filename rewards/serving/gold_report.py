"""Says at start which gold answers of the file the functions cannot use: a count and rows on stderr, never the text.

It asks the functions themselves, in their workers and within their time limits, to score an empty answer against each
gold. One that fails, or that pays more than on the other rows, cannot tell right from wrong there.
"""

from collections.abc import Sequence

from rewards.batch import Batch
from rewards.calling.describe import FunctionInfo
from rewards.calling.targets import is_builtin
from rewards.running.inline import Engine
from rewards.scoring import FunctionScores
from rewards.serving.gold import Gold, GoldSet, shown_rows
from rewards.serving.http_io import say

EMPTY_ANSWER = "<answer></answer>"
ROWS_AT_ONCE = 256  # so that requests get their turn in between


async def report_unusable(golds: GoldSet, engine: Engine) -> None:
    """For built-in functions that need a gold; what a user's function makes of an empty answer is its own business."""
    for function in engine.functions:
        if is_builtin(function.target) and len(function.required_columns) == 1 and not function.only:
            await _report(golds, engine, function)


async def _report(golds: GoldSet, engine: Engine, function: FunctionInfo) -> None:
    failing: list[int] = []
    paid: list[tuple[float, int]] = []
    for start in range(0, len(golds.rows), ROWS_AT_ONCE):
        rows = golds.rows[start : start + ROWS_AT_ONCE]
        scores = await _scores(rows, engine, function)
        if any(failure.kind == "unavailable" for failure in scores.failures):
            return  # the server stops, or cannot score at all and says so
        failing += [rows[position].row for position in sorted(scores.failed)]
        paid += [(value, row.row) for value, row in zip(scores.values, rows, strict=True) if value is not None]
    least = min((value for value, _ in paid), default=0.0)
    for unusable, how in (
        (failing, "it fails on them"),
        ([row for value, row in paid if value > least], "it would score any answer as right"),
    ):
        if unusable:
            count = f"{len(unusable)} of {len(golds.rows)} gold answers"
            text = f"{function.name} cannot use {count} ({shown_rows(unusable)}): {how}"
            say(f"--gold {golds.path}: {text}")


async def _scores(rows: Sequence[Gold], engine: Engine, function: FunctionInfo) -> FunctionScores:
    batch = Batch(
        prompts=[gold.question for gold in rows],
        completions=[EMPTY_ANSWER] * len(rows),
        columns={function.required_columns[0]: [gold.answer for gold in rows]},
    )
    return (await engine.score(batch, [function.name]))[function.name]
