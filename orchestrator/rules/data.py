"""DAT: the rows that a run trains on, and those that it is measured with."""

from collections.abc import Iterator

from orchestrator.findings import Finding
from orchestrator.ledgers.batches import run_batches
from orchestrator.rules.case import Case


def data_unreadable(case: Case) -> Iterator[Finding]:
    """The training data can be read.

    ## What it checks
    `data`: the file is there, every line is an object with the same columns, the prompt column exists, `data.rows` are
    to be had; the data set of reasoning_gym exists and takes `data.params`.
    ## Why it matters
    The trainer would find out after everything has started.
    ## Bad
        data=jsonl data.path=nowhere.jsonl evaluation.rows=0
        data=jsonl data.path=tests/rules/rows.jsonl data.prompt=question evaluation.rows=0
        data=reasoning_gym data.task=chain_summ
    ## Good
        data=jsonl data.path=tests/rules/rows.jsonl data.rows=null evaluation.rows=0
    """
    if _own_data(case):
        return
    where = "data.task" if case.run.data.source == "reasoning_gym" else "data.path"
    if isinstance(case.facts.data, str) and case.is_sound("data.path") and case.is_sound("data.rows"):
        yield Finding(
            values={"data.source": case.run.data.source, where: getattr(case.run.data, where.removeprefix("data."))},
            problem=case.facts.data,
            why="There would be nothing to train on.",
            fix="correct the file or the data settings",
        )


def _own_data(case: Case) -> bool:
    """A foreign trainer reads its own data."""
    return case.run.trainer.kind == "command"


def heldout_unreadable(case: Case) -> Iterator[Finding]:
    """The held-out data can be read.

    ## What it checks
    With `evaluation.rows` above zero, that as many held-out rows are to be had.
    ## Why it matters
    The run would fail at its first evaluation, or measure on rows that it trained on.
    ## Bad
        evaluation.rows=5000
        data=jsonl data.path=tests/rules/rows.jsonl
        data=jsonl data.path=tests/rules/rows.jsonl data.heldout_path=tests/rules/rows.jsonl evaluation.rows=2
    ## Good
        data=jsonl data.path=tests/rules/rows.jsonl data.heldout_path=tests/rules/held.jsonl evaluation.rows=2
        evaluation.rows=0
    """
    data = case.run.data
    if data.heldout_path and data.heldout_path == data.path:
        yield Finding(
            severity="warning",
            values={"data.path": data.path, "data.heldout_path": data.heldout_path},
            problem="the held-out rows are the training rows",
            why="The accuracy after training is measured on what was trained on.",
            fix="set data.heldout_path to a file of other rows, or evaluation.rows=0",
        )
    said = case.facts.heldout == case.facts.data  # the same reason twice: DAT001 gives it
    if isinstance(case.facts.heldout, str) and not _own_data(case) and not said:
        yield Finding(
            values={"evaluation.rows": case.run.evaluation.rows, "data.heldout_path": case.run.data.heldout_path},
            problem=case.facts.heldout,
            why="The accuracy before and after training is measured on rows that are not trained on.",
            fix="lower evaluation.rows, set data.heldout_path, or evaluation.rows=0 for none",
        )


def fewer_rows_than_prompts(case: Case) -> Iterator[Finding]:
    """There are at least as many prompts as one generation batch takes.

    ## What it checks
    Rows of the data (without prompts that `data.long_prompts: drop` leaves out, where they are counted) against the
    prompts of one generation batch.
    ## Why it matters
    TRL's sampler drops the incomplete batch: with too few rows there is no batch at all, and training ends at step 0.
    ## Bad
        data.rows=8
        data.long_prompts=drop limits.prompt_length=4
        facts: {"prompt_tokens": {"7": 3190, "4": 10}}
    ## Good
        data.rows=16
    """
    plan = run_batches(case.run)
    data = case.facts.data
    if plan is None or isinstance(data, str) or plan.generation_batch % plan.group or _own_data(case):
        return
    prompts = plan.generation_batch // plan.group
    rows = data.rows
    if case.run.data.long_prompts == "drop" and not isinstance(case.facts.prompt_tokens, str):
        limit = case.run.limits.prompt_length
        rows = sum(count for length, count in case.facts.prompt_tokens.items() if length <= limit)
    if rows < prompts:
        yield Finding(
            values={"data.rows": rows, "prompts a batch": prompts},
            problem=f"{rows} rows; a batch takes {prompts} prompts ({plan.generation_batch} / {plan.group})",
            why="TRL drops an incomplete batch, so there would be none.",
            fix=f"set data.rows to at least {prompts}, or lower the batch",
        )


WITHHELD = ("completion", "environment")
"""TRL keeps these from reward functions, and does no harm with them otherwise."""

RESERVED = (
    "completion",
    "completions",
    "completion_ids",
    "prompts",
    "images",
    "image",
    "tools",
    "rollout_status",
    "environment",
)
"""Names that TRL or our rollouts give to other things."""


def reserved_column(case: Case) -> Iterator[Finding]:
    """The data have no column with a name that the trainer uses.

    ## What it checks
    Column names of the data against those that TRL and our rollouts fill: completions, completion_ids, images, tools
    and the like.
    ## Why it matters
    The trainer would take the column for something else (images make a text model fail), or hide it from the rewards.
    ## Bad
        data.columns.tools=answer
    ## Good
        data.columns.gold=answer reward.functions.0.target=tests/rules/no_columns.py:score
    """
    data = case.facts.data
    columns = () if isinstance(data, str) or _own_data(case) else data.columns
    read = {
        name
        for signature in case.facts.signatures.values()
        if not isinstance(signature, str)
        for name in signature.parameters
    }
    for column in RESERVED:
        if column in columns and (column not in WITHHELD or column in read):
            yield Finding(
                values={"data columns": ", ".join(columns)},
                problem=f"the data have a column {column}, which is a name of the trainer's",
                why="TRL would take it for something else.",
                fix=f"rename it: data.columns.NAME={column}",
            )
