"""The functions of a reward server, one by one."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.facts import Facts
from orchestrator.schema import RewardFunctionConfig, RunConfig
from orchestrator.supervise.handshake.interview import Interview
from rewards.signature import read_signature
from rewards.targets import LoadError


def compare_functions(talk: Interview, run: RunConfig, facts: Facts, said: Mapping[str, Any]) -> None:
    functions = {function["name"]: function for function in said["functions"]}
    names = [function.name for function in run.reward.functions]
    talk.compare(
        "functions",
        sorted(names),
        sorted(functions),
        why="Rewards of other functions would be trained on.",
        fix=talk.either(f"--function for {', '.join(names)}", f"reward.functions with {', '.join(sorted(functions))}"),
    )
    for function in run.reward.functions:
        if function.name in functions:
            _settings(talk, function, functions[function.name])
            _source(talk, function, functions[function.name])
            _columns(talk, function.name, facts, functions[function.name].get("required_columns", ()))
            _self_test(talk, function.name, functions[function.name].get("self_test") or {})


def _settings(talk: Interview, function: RewardFunctionConfig, said: Mapping[str, Any]) -> None:
    meant = {"weight": function.weight, "key": function.key, "params": dict(function.params)}
    if function.granularity is not None:
        meant["granularity"] = function.granularity
    for key, value in meant.items():
        talk.compare(
            f"{function.name}: {key}",
            value,
            said.get(key),
            why="Its scores, or what they count for, would be others than the recipe means.",
            fix=talk.either(f"{key} {value!r} in --function", f"the {key} of reward function {function.name}"),
        )


def _source(talk: Interview, function: RewardFunctionConfig, said: Mapping[str, Any]) -> None:
    """The file that we would run against the one that it runs."""
    name, theirs = f"{function.name}: source", said.get("source_sha256")
    try:
        signature = read_signature(function.target)
    except LoadError as error:
        talk.skip(name, f"{function.target} cannot be read here: {error}", said=theirs)
        return
    if signature.path is None or not signature.exact or theirs is None:
        talk.skip(name, "which file defines it is not certain", said=theirs)
        return
    talk.compare(
        name,
        hashlib.sha256(signature.path.read_bytes()).hexdigest(),
        theirs,
        why=f"It runs other code than {signature.path}.",
        fix="restart it: the file changed since" if talk.started else "restart it with this file, or name its target",
    )


def _columns(talk: Interview, name: str, facts: Facts, required: Sequence[str]) -> None:
    if isinstance(facts.data, str):
        talk.skip(f"{name}: columns", f"the data's are not known: {facts.data}", meant=list(required))
        return
    columns = [column for column in facts.data.columns if column != "prompt"]
    missing = [column for column in required if column not in columns]
    talk.compare(
        f"{name}: columns",
        columns,
        list(required),
        agrees=not missing,
        sentence=f"it wants {', '.join(missing)}, and the data have {', '.join(columns) or 'no column'}."
        if missing
        else "",
        why="The first request would be refused with 422.",
        fix=" ".join(f"data.columns.{column}=THE_DATA'S_NAME" for column in missing) or "-",
    )


def _self_test(talk: Interview, name: str, test: Mapping[str, Any]) -> None:
    if test.get("passed") is None:
        talk.skip(f"{name}: self-test", str(test.get("detail") or "it names none"))
        return
    talk.compare(
        f"{name}: self-test",
        True,
        test["passed"],
        why=str(test.get("detail", "")),
        fix="mend the function, or its SELF_TEST pair",
    )
