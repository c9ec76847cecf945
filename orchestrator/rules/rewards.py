"""RWD: reward functions against the data that feed them. User files are read by ast, never imported."""

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from orchestrator.data.facts import DataFacts
from orchestrator.findings import Finding, skipped
from orchestrator.rules.case import Case
from orchestrator.schema import PostProcessConfig, RewardFunctionConfig
from rewards.batch import gold_column
from rewards.calling.shapes import CONVENTIONS
from rewards.calling.signature import Signature, unknown_params


def no_function(case: Case) -> Iterator[Finding]:
    """There is something to optimise.

    ## What it checks
    That `reward.functions` names at least one function with a weight other than zero; not for trainers that have their
    reward elsewhere: ebft (from frozen features), a foreign one, and environments that score.
    ## Why it matters
    Without a reward every advantage is zero.
    ## Bad
        reward.functions=[]
        reward.functions.0.weight=0
    ## Good
        reward.functions.0.weight=0.5
    """
    functions = case.run.reward.functions
    environment = case.run.reward.environment
    elsewhere = case.run.trainer.kind in ("ebft", "command") or environment.urls or environment.calls_model
    sound = not any(problem.path.startswith("reward.functions") for problem in case.problems)
    if sound and not elsewhere and not any(function.weight for function in functions):
        yield Finding(
            values={"reward.functions": [f.name or f.target for f in functions]},
            problem="no reward function has a weight" if functions else "reward.functions is empty",
            why="Every reward would be the same, and nothing could be learned.",
            fix="reward.functions=[{name: accuracy, target: accuracy}]",
        )


def function_names(case: Case) -> Iterator[Finding]:
    """Reward functions have names of their own.

    ## What it checks
    Each function has a name and a target, and no name is used twice.
    ## Why it matters
    Metrics, samples and weights go by name: two of one name would overwrite each other.
    ## Bad
        'reward.functions=[{name: a, target: accuracy}, {name: a, target: format}]'
        'reward.functions=[{target: accuracy}]'
    ## Good
        'reward.functions=[{name: a, target: accuracy}, {name: b, target: exact_match}]'
    """
    functions = case.run.reward.functions
    for index, function in enumerate(functions):
        for key in ("name", "target"):
            if not getattr(function, key):
                yield Finding(
                    values={f"reward.functions.{index}.{key}": ""},
                    problem=f"reward function {index} has no {key}",
                    why="It could not be found or reported.",
                    fix=f"set reward.functions.{index}.{key}",
                )
    for name, count in Counter(f.name for f in functions if f.name).items():
        if count > 1:
            yield Finding(
                values={"reward.functions": [f.name for f in functions]},
                problem=f"{count} reward functions are called {name}",
                why="Their metrics and weights would be mixed up.",
                fix="give each its own name",
            )


def function_not_found(case: Case) -> Iterator[Finding]:
    """Reward functions exist.

    ## What it checks
    That the target's file is there and defines the function at its top level, in a shape that is known (TRL, vime,
    Align-Anything, OpenRLHF) and that fits its granularity; the same for the post-process hook. The file is parsed, not
    run.
    ## Why it matters
    The reward server would fail when it starts, after the model has loaded elsewhere.
    ## Bad
        reward.functions.0.target=nowhere.py:score
        reward.functions.0.target=acuracy
        reward.functions.0.target=tests/rules/foreign_shapes.py:of_a_sample reward.functions.0.granularity=batch
        reward.post_process.target=group_nrom
        reward.post_process.target=tests/rules/foreign_shapes.py:of_a_sample
        'reward.functions=[{name: long, target: repetition_penalty, params: {max_penatly: -0.5}}]'
    ## Good
        reward.functions.0.target=exact_match
        reward.functions.0.target=tests/rules/foreign_shapes.py:of_a_sample reward.post_process.target=group_norm
        reward.functions.0.target=tests/rules/foreign_shapes.py:of_a_batch
    """
    reward = case.run.reward
    if reward.kind == "external":
        return
    named: list[tuple[str, str, RewardFunctionConfig | PostProcessConfig, Signature | str | None]] = [
        (f"reward.functions.{i}", f"reward function {f.name or i}", f, case.facts.signatures.get(f.target))
        for i, f in enumerate(reward.functions)
    ]
    hook = case.facts.hook_signature
    named.append(("reward.post_process", "the post-process hook", reward.post_process, hook))
    for path, name, function, found in named:
        if isinstance(found, str):
            yield Finding(
                values={f"{path}.target": function.target},
                problem=f"{name} cannot be used: {found}",
                why="The reward server would not start.",
                fix="write target as a built-in's name, package.module:function or file.py:function",
            )
        elif found is not None and found.exact:
            yield from _call_problems(path, name, function, found)


def _call_problems(
    path: str, name: str, function: RewardFunctionConfig | PostProcessConfig, signature: Signature
) -> Iterator[Finding]:
    """What the signature alone shows: a reward server binds functions by these names when it starts."""
    known = ", ".join(signature.parameters)
    if signature.shape == "post_process" and not signature.takes_rewards:
        yield Finding(
            values={f"{path}.target": function.target, "parameters": known},
            problem=f"{name} takes neither samples nor rewards; its parameters are {known}",
            why="The reward server would not start.",
            fix=f"name a hook, {CONVENTIONS['post_process'].says}, or group_norm",
        )
    if signature.shape is None or (signature.shape == "trl" and not signature.accepts("completions")):
        yield Finding(
            values={f"{path}.target": function.target, "parameters": known},
            problem=f"{name} does not take completions, and is of no other shape that is known; its parameters are "
            f"{known}",
            why="The reward server would not start.",
            fix="rename the parameter that holds the answers to completions (a list of texts or messages), or set "
            f"{path}.shape: trl, vime_sample, vime_group, align_anything or openrlhf",
        )
    elif isinstance(function, RewardFunctionConfig):
        units = CONVENTIONS[signature.shape].granularities
        if function.granularity is not None and function.granularity not in units:
            yield Finding(
                values={f"{path}.granularity": function.granularity, "shape": signature.shape},
                problem=f"{name} is {CONVENTIONS[signature.shape].says}: it is called per {units[0]}",
                why="The reward server would not start.",
                fix=f"{path}.granularity={units[0]}",
            )
    for param in unknown_params(function.target, function.params, signature):
        near = get_close_matches(param, signature.parameters, n=1)
        yield Finding(
            values={f"{path}.params": dict(function.params), "parameters": known},
            problem=f"{name} has no parameter {param}; it has {known}",
            why="The reward server would not start.",
            fix=f"write params.{near[0]}" if near else f"remove params.{param}",
        )


FOREIGN_NAMES = {
    "completion": "completions",
    "queries": "completions",
    "solution_str": "completions",
    "prompt": "prompts",
    "ground_truth": "answer",
    "golden_responses": "answer",
    "labels": "answer",
}
"""Parameters that other frameworks pass -> what they are called here."""


def column_missing(case: Case) -> Iterator[Finding]:
    """The data have the columns that reward functions want.

    ## What it checks
    Each required parameter of a reward function (but prompts, completions and the like, and what `params` gives)
    against the columns of the data, training and held-out.
    ## Why it matters
    The function fails at the first score, after generation has run.
    ## Bad
        reward.functions.0.target=tests/rules/wants_solution.py:score
        reward.functions.0.target=tests/rules/foreign_shapes.py:of_a_sample data.columns.outcome=answer
    ## Good
        reward.functions.0.target=tests/rules/wants_solution.py:score 'reward.functions.0.params={solution: 3}'
    """
    data = case.facts.data
    if case.run.reward.kind == "external":
        return
    for function in case.run.reward.functions:
        signature = case.facts.signatures.get(function.target)
        if signature is None or isinstance(signature, str):
            continue
        yield from _no_gold(function, signature, data)
        missing = [c for c in signature.required if c not in function.params]
        if missing and isinstance(data, str):
            yield skipped(
                f"{function.name} wants {', '.join(missing)}; the data's columns are not known",
                "make the data readable",
            )
            continue
        for column in missing:
            for columns in _splits_without(case, column):
                yield _column_finding(function.name, function.target, column, columns)


def _no_gold(function: RewardFunctionConfig, signature: Signature, data: DataFacts | str) -> Iterator[Finding]:
    """Functions of other frameworks do not name the gold answers' column: they get the one that is known as such."""
    asks = signature.shape in ("vime_sample", "vime_group", "openrlhf") or (
        signature.shape == "align_anything" and len(signature.parameters) > 2
    )
    if asks and not isinstance(data, str) and gold_column(dict.fromkeys(data.columns)) is None:
        yield Finding(
            severity="warning",
            values={"reward function": f"{function.name} ({function.target})", "data columns": ", ".join(data.columns)},
            problem=f"{function.name} is called with the gold answers, and no column of the data is known to hold them",
            why="It would get None as each answer: the same reward for every completion, if it needs them.",
            fix="data.columns.answer=FILE_COLUMN",
        )


def _splits_without(case: Case, column: str) -> Iterator[tuple[str, ...]]:
    """Columns of the training data, or else of the held-out data, that lack the one in question."""
    for data in (case.facts.data, case.facts.heldout):
        if data is not None and not isinstance(data, str) and column not in data.columns:
            yield data.columns
            return


def _column_finding(name: str, target: str, column: str, columns: tuple[str, ...]) -> Finding:
    near = get_close_matches(column, columns, n=1)
    source = near[0] if near else "FILE_COLUMN"
    ours = FOREIGN_NAMES.get(column)
    renamed = f"rename the parameter to {ours}, as it is called here; or " if ours in ("prompts", "completions") else ""
    return Finding(
        values={"reward function": f"{name} ({target})", "data columns": ", ".join(columns)},
        problem=f"reward function {name} wants the column {column}; the data have {', '.join(columns)}",
        why="It would fail at the first completion, after the model has generated.",
        fix=f"{renamed}map a column of the file with data.columns.{column}={source}, or give it with params: "
        f"{{{column}: ...}}",
    )


def trainer_state_not_sent(case: Case) -> Iterator[Finding]:
    """Reward functions do not need the trainer's state.

    ## What it checks
    Parameters called `trainer_state`: TRL passes one to functions in its own process, a reward server has none.
    ## Why it matters
    The function would get None, and fail at the first score or, worse, go on with it.
    ## Bad
        reward.functions.0.target=tests/rules/wants_state.py:score
    ## Good
        reward.functions.0.target=tests/rules/no_columns.py:score
    """
    for index, function in enumerate(case.run.reward.functions):
        signature = case.facts.signatures.get(function.target)
        if signature is not None and not isinstance(signature, str) and "trainer_state" in signature.parameters:
            yield Finding(
                severity="error" if "trainer_state" in signature.required else "note",
                values={f"reward.functions.{index}.target": function.target},
                problem=f"{function.name} takes trainer_state, and nothing sends it",
                why="It would get None: an error at the first score, or a reward that does not follow the training.",
                fix="remove the parameter; a column of the data or params can say what it needs",
            )
