"""RWD: what a reward server needs from its surroundings: tokens, time, rows of its own."""

from collections.abc import Iterator
from difflib import get_close_matches

from orchestrator.findings import Finding, skipped
from orchestrator.kinds import generation_kind
from orchestrator.ledgers.batches import world_size
from orchestrator.rules.case import Case


def no_reward_limit(case: Case) -> Iterator[Finding]:
    """Functions inside the trainer are trusted ones.

    ## What it checks
    With `reward.kind: inprocess`, whether a function comes from a user's file.
    ## Why it matters
    Inside the trainer there is no time limit: one call that hangs stops the run. A note, for cheap functions are what
    this kind is for.
    ## Bad
        reward=inprocess 'reward.functions=[{name: mine, target: "tests/rules/no_columns.py:score"}]'
    ## Good
        reward=inprocess 'reward.functions=[{name: accuracy, target: accuracy}]'
    """
    if case.run.reward.kind == "inprocess":
        for function in case.run.reward.functions:
            if ":" in function.target:
                yield Finding(
                    severity="note",
                    values={"reward.kind": "inprocess", "function": function.target},
                    problem=f"{function.name} runs inside the trainer, without a time limit",
                    why="A call that hangs would stop the run.",
                    fix="reward=local runs it in a worker process with a limit",
                )


def token_not_set(case: Case) -> Iterator[Finding]:
    """The reward server's token is in the environment.

    ## What it checks
    With `reward.token_env`, that the variable is set where `orchestrate` runs.
    ## Why it matters
    The server refuses to start without it, and a foreign one refuses every request.
    ## Bad
        reward.token_env=NO_SUCH_VARIABLE_IS_SET
    ## Good
        reward.token_env=PATH
    """
    name = case.run.reward.token_env
    if case.run.reward.kind != "inprocess" and name and name not in case.facts.environment:
        yield Finding(
            values={"reward.token_env": name if name.isidentifier() else "(not shown)"},
            problem=f"reward.token_env names {name}, which is not set"
            if name.isidentifier()
            else "reward.token_env is to name the variable that holds the token, not the token",
            why="The reward server takes no request without the token.",
            fix=f"export {name}=..." if name.isidentifier() else "write reward.token_env=REWARD_TOKEN, and export it",
        )


def source_without_function(case: Case) -> Iterator[Finding]:
    """Every row is scored by some function.

    ## What it checks
    Where functions score only some rows (`only: {column: [values]}`): that the column is in the data, and that each of
    its values is scored by a function that has a weight; a function without any such row is a warning.
    ## Why it matters
    A row that no function scores is an error in the middle of training.
    ## Bad
        'reward.functions=[{name: a, target: accuracy, only: {source: [gsm8k, math]}}]'
        facts: {"data": {"columns": ["prompt", "answer", "source"], "values": {"source": ["my_math"]}}}
        'reward.functions=[{name: a, target: accuracy, only: {sorce: [gsm8k]}}]'
        'reward.functions=[{name: a, target: accuracy}, {name: b, target: length, only: {source: [maht]}}]'
        facts: {"data": {"columns": ["prompt", "answer", "source"], "values": {"source": ["math"]}}}
        'reward.functions=[{name: a, target: accuracy, only: {source: [math]}}, {name: l, target: length, weight: 0}]'
        facts: {"data": {"columns": ["prompt", "answer", "source"], "values": {"source": ["math", "code"]}}}
    ## Good
        'reward.functions=[{name: a, target: accuracy, only: {source: [gsm8k, math]}}]'
        facts: {"data": {"columns": ["prompt", "answer", "source"], "values": {"source": ["math"]}}}
    """
    functions, data = [f for f in case.run.reward.functions if f.weight], case.facts.data
    if isinstance(data, str) or not functions or not all(function.only for function in functions):
        columns = () if isinstance(data, str) else data.columns
    else:
        columns = data.columns
        for column in sorted({name for function in functions for name in function.only}):
            taken = [str(v) for function in functions for v in _listed(function.only.get(column))]
            if any(column not in function.only for function in functions):
                continue  # a function that does not look at the column scores its rows
            if column in data.columns and column not in data.values:
                yield skipped(
                    f"the values of the data's column {column} are no short list of texts, so whether every row is "
                    "scored is not known",
                    "use a text column with few values in only",
                )
            left = [value for value in data.values.get(column, ()) if value not in taken]
            if left:
                near = get_close_matches(left[0], taken, n=1, cutoff=0.4)
                shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
                yield Finding(
                    values={f"data column {column}": shown, "reward.functions": [f.name for f in functions]},
                    problem=f"no reward function scores rows whose {column} is {shown}; known are "
                    + ", ".join(taken)
                    + (f" (nearest: {near[0]})" if near else ""),
                    why="The first such row ends the run.",
                    fix=f"add {left[0]} to a function's only.{column}, or leave such rows out of the data",
                )
    for index, function in enumerate(case.run.reward.functions):
        for column in function.only:
            if columns and column not in columns:
                yield Finding(
                    values={f"reward.functions.{index}.only": function.only, "data columns": ", ".join(columns)},
                    problem=f"{function.name} scores by the column {column}, and the data have {', '.join(columns)}",
                    why="Nothing would say which rows are its own.",
                    fix=f"name a column of the data, or map one: data.columns.{column}=NAME",
                )
            there = () if isinstance(data, str) else data.values.get(column, ())
            chosen = [str(value) for value in _listed(function.only[column])]
            if there and chosen and not set(chosen) & set(there):
                near = get_close_matches(chosen[0], there, n=1, cutoff=0.4)
                yield Finding(
                    severity="warning",
                    values={f"reward.functions.{index}.only": function.only, f"data column {column}": ", ".join(there)},
                    problem=f"{function.name} scores rows whose {column} is {', '.join(chosen)}, and no row has that",
                    why="It would never score anything.",
                    fix=f"write {near[0] if near else 'one of the data'}" + ("" if near else "'s values"),
                )


def _listed(values: object) -> list[object]:
    return list(values) if isinstance(values, list) else []


DDP_TIMEOUT_S = 1800
"""TrainingArguments' default of ddp_timeout."""


def reward_outlasts_collective(case: Case) -> Iterator[Finding]:
    """A reward is given up before the other processes give up waiting for it.

    ## What it checks
    `reward.timeout_s` (and `generation.request_timeout_s`) against `trainer.args.ddp_timeout` (1800 s by default) with
    several trainer processes.
    ## Why it matters
    One process asks for rewards, the others wait in a collective: its time-out ends the run with a message about NCCL.
    ## Bad
        launcher=torchrun reward.timeout_s=7200
        launcher=torchrun +trainer.args.ddp_timeout=5
    ## Good
        launcher=torchrun reward.timeout_s=60
        reward.timeout_s=7200
    """
    run = case.run
    limit = run.trainer.args.get("ddp_timeout")
    limit = DDP_TIMEOUT_S if limit is None else limit
    if world_size(run) < 2 or not isinstance(limit, (int, float)):
        return
    waits = {}
    if run.reward.kind != "inprocess":
        waits["reward.timeout_s"] = run.reward.timeout_s
    if generation_kind(run.generation).server:
        waits["generation.request_timeout_s"] = run.generation.request_timeout_s
    for path, seconds in waits.items():
        if seconds >= limit:
            yield Finding(
                values={path: seconds, "trainer.args.ddp_timeout": limit, "processes": world_size(run)},
                problem=f"{path} = {seconds:g} s is not below the collective time-out of {limit:g} s",
                why="The other processes give up first, and the message names NCCL and not the slow service.",
                fix=f"set {path} below {limit:g}, or trainer.args.ddp_timeout above {seconds:g}",
            )
