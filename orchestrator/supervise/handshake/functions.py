"""The functions of a reward server, one by one."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.facts import Facts
from orchestrator.schema import PostProcessConfig, RewardFunctionConfig, RunConfig
from orchestrator.supervise.handshake.interview import Interview
from rewards.calling.post_process import NAME as POST_PROCESS
from rewards.calling.signature import INPUTS, read_signature
from rewards.calling.targets import LoadError, split_target
from rewards.contract import Shape

HOOK: Shape = "post_process"


def compare_functions(talk: Interview, run: RunConfig, facts: Facts, said: Mapping[str, Any]) -> None:
    """Every function, and the post-process hook, which /info shows as one more of them."""
    functions = {function["name"]: function for function in said["functions"] if not is_hook(function)}
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
            _source(talk, function.name, function.target, functions[function.name])
            _columns(talk, function.name, facts, functions[function.name].get("required_columns", ()))
            _self_test(talk, function.name, functions[function.name].get("self_test") or {})
    _compare_hook(talk, run.reward.post_process, facts, next(filter(is_hook, said["functions"]), None))


def is_hook(function: Mapping[str, Any]) -> bool:
    return function.get("shape") == HOOK


def _compare_hook(talk: Interview, hook: PostProcessConfig, facts: Facts, said: Mapping[str, Any] | None) -> None:
    """`said` None: the server has none."""
    target = said["target"] if said else ""
    if hook.target or target:
        talk.compare(
            POST_PROCESS,
            hook.target or "none",
            target or "none",
            agrees=bool(hook.target) == bool(target),
            why="What is trained on would be other numbers than the recipe means.",
            fix=talk.either(
                f"--post-process '{{\"target\": ...}}' for {hook.target}" if hook.target else "no --post-process",
                f"reward.post_process.target={target}",
            ),
        )
    if hook.target and said:
        talk.compare(
            f"{POST_PROCESS}: params",
            dict(hook.params),
            said.get("params"),
            why="What is trained on would be other numbers than the recipe means.",
            fix=talk.either("the recipe's params in --post-process", "reward.post_process.params"),
        )
        _source(talk, POST_PROCESS, hook.target, said)
        _columns(talk, POST_PROCESS, facts, said.get("required_columns", ()))


def _settings(talk: Interview, function: RewardFunctionConfig, said: Mapping[str, Any]) -> None:
    meant = {
        "weight": function.weight,
        "key": function.key,
        "eval_key": function.eval_key,
        "params": dict(function.params),
        "only": dict(function.only),
    }
    for name in ("granularity", "shape"):  # where the recipe names none, what the function declares holds
        if getattr(function, name) is not None:
            meant[name] = getattr(function, name)
    for key, value in meant.items():
        talk.compare(
            f"{function.name}: {key}",
            value,
            said.get(key),
            why="Its scores, or what they count for, would be others than the recipe means.",
            fix=talk.either(f"{key} {value!r} in --function", f"the {key} of reward function {function.name}"),
        )


def _source(talk: Interview, function: str, target: str, said: Mapping[str, Any]) -> None:
    """The function and its file that we would run against those that it runs."""
    talk.compare(
        f"{function}: target",
        _own_name(target),
        _own_name(str(said.get("target"))),
        why="It runs another function.",
        fix=talk.either(f"target {target}", f"the target {said.get('target')}"),
    )
    name, theirs = f"{function}: source", said.get("source_sha256")
    try:
        signature = read_signature(target)
    except LoadError as error:
        talk.skip(name, f"{target} cannot be read here: {error}", said=theirs)
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


def _own_name(target: str) -> str:
    """The function's name in its file: the same file may have another path there."""
    try:
        return split_target(target)[1]
    except LoadError:
        return target


def _columns(talk: Interview, name: str, facts: Facts, required: Sequence[str]) -> None:
    if isinstance(facts.data, str):
        talk.skip(f"{name}: columns", f"the data's are not known: {facts.data}", meant=list(required))
        return
    columns = [column for column in facts.data.columns if column != "prompt"]
    missing = [column for column in required if column not in columns and column not in INPUTS]
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
