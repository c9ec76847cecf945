"""The rows that a recipe asks for: the same call for the rules and for the trainer."""

from orchestrator.data.columns import Row
from orchestrator.data.loading import load_rows
from orchestrator.schema import RunConfig


def training_rows(run: RunConfig) -> list[Row]:
    """Raises DataError."""
    return _rows(run, "train", run.data.rows)


def heldout_rows(run: RunConfig) -> list[Row]:
    """`evaluation.rows` rows that are never trained on; none when it is 0. Raises DataError."""
    return _rows(run, "heldout", run.evaluation.rows) if run.evaluation.rows > 0 else []


def _rows(run: RunConfig, split: str, rows: int | None) -> list[Row]:
    data = run.data
    return load_rows(
        data.source,
        split=split,
        rows=rows,
        other_rows=run.evaluation.rows if split == "train" else data.rows,
        seed=data.seed,
        path=data.path,
        heldout_path=data.heldout_path,
        task=data.task,
        params=data.params,
        prompt=data.prompt,
        columns=data.columns,
        chat=data.chat,
    )
