"""RWD: built-in reward functions, and what their params mean for this recipe."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.findings import Finding
from orchestrator.rules.case import Case
from orchestrator.schema import RewardFunctionConfig
from rewards.calling.targets import BUILTINS

NEEDS: Mapping[str, tuple[str, str]] = {
    "code": ("allow_execution", "true, if code that a model wrote may run here"),
    "regex": ("pattern", "'[0-9]+'"),
    "remote": ("url", "http://127.0.0.1:8008"),
    "reward_model": ("model", "FOLDER"),
    "soft_overlong": ("max_length", "${limits.completion_length}"),
}
"""Built-in -> the parameter without which it does nothing, and what to write."""
RETURNS_DICTS = {"dapo": "score"}
"""Built-in -> the entry that is its reward."""
RETURNS_ANYTHING = ("remote",)


def builtin_params(case: Case) -> Iterator[Finding]:
    """Built-in functions have the params that they cannot do without.

    ## What it checks
    The params of `code`, `regex`, `remote`, `reward_model` and `soft_overlong`, and the `key` of `dapo`, which returns
    a dict; no key and no foreign shape for the others.
    ## Why it matters
    The reward server would refuse to start, or the first batch would be an error.
    ## Bad
        reward.functions.0.target=code
        'reward.functions=[{name: late, target: soft_overlong, params: {cache: 2}}]'
        'reward.functions=[{name: dapo, target: dapo}]'
        reward.functions.0.key=score
        reward.functions.0.shape=vime_group
    ## Good
        'reward.functions=[{name: late, target: soft_overlong, params: {cache: 2, max_length: 8}}]'
        'reward.functions=[{name: dapo, target: dapo, key: score}]'
    """
    for index, function in enumerate(case.run.reward.functions):
        path = f"reward.functions.{index}"
        if function.target in NEEDS:
            param, value = NEEDS[function.target]
            if not function.params.get(param):
                yield Finding(
                    values={f"{path}.target": function.target, f"{path}.params": dict(function.params)},
                    problem=f"{function.target} needs params.{param}",
                    why="The reward server would not start.",
                    fix=f"{path}.params.{param}={value}",
                )
        key = RETURNS_DICTS.get(function.target)
        if key and function.key is None:
            yield Finding(
                values={f"{path}.target": function.target, f"{path}.key": None},
                problem=f"{function.target} returns a dict, and no key says which entry is the reward",
                why="The reward server would not start.",
                fix=f"{path}.key={key}",
            )
        if function.target in BUILTINS and function.target not in RETURNS_ANYTHING and function.key and not key:
            yield Finding(
                values={f"{path}.target": function.target, f"{path}.key": function.key},
                problem=f"{function.target} returns numbers, and key {function.key} asks for an entry of a dict",
                why="The reward server would not start.",
                fix=f"{path}.key=null",
            )
        if function.target in BUILTINS and function.shape not in (None, "trl"):
            yield Finding(
                values={f"{path}.target": function.target, f"{path}.shape": function.shape},
                problem=f"{function.target} is built in, and called as TRL's functions are",
                why="The reward server would not start.",
                fix=f"{path}.shape=null",
            )


def overlong_beyond_limit(case: Case) -> Iterator[Finding]:
    """A punishment for long completions begins before generation cuts them.

    ## What it checks
    `soft_overlong`'s max_length and cache (tokens) against `limits.completion_length`.
    ## Why it matters
    The punishment grows from max_length - cache tokens on. Where completions are cut before, it is never paid; where
    they are cut before max_length, its last part is not.
    ## Bad
        'reward.functions=[{name: late, target: soft_overlong, params: {max_length: 20480, cache: 4096}}]'
    ## Good
        'reward.functions=[{name: late, target: soft_overlong, params: {max_length: 8, cache: 4}}]'
    """
    limit = case.run.limits.completion_length
    for index, function in enumerate(case.run.reward.functions):
        most = function.params.get("max_length")
        if function.target == "soft_overlong" and isinstance(most, int) and most > limit:
            yield Finding(
                severity="warning",
                values={f"reward.functions.{index}.params.max_length": most, "limits.completion_length": limit},
                problem=f"soft_overlong punishes up to {most} tokens, and completions are cut at {limit}",
                why="The punishment that is meant to teach shorter answers is paid in part or not at all.",
                fix=f"reward.functions.{index}.params.max_length={limit}"
                + (f" reward.functions.{index}.params.cache={limit // 2 or 1}" if _cache(function) > limit else ""),
            )


def _cache(function: RewardFunctionConfig) -> int:
    cache = function.params.get("cache")
    return cache if isinstance(cache, int) else 0


def reward_model_too_short(case: Case) -> Iterator[Finding]:
    """A reward model reads whole sequences.

    ## What it checks
    `reward_model`'s max_length (tokens, by its own tokenizer) against prompt and completion length together, unless
    `too_long` says that it cuts.
    ## Why it matters
    The first sequence that is longer is an error, in the middle of training.
    ## Bad
        'reward.functions=[{name: rm, target: reward_model, params: {model: DIR, max_length: 10}}]'
    ## Good
        'reward.functions=[{name: rm, target: reward_model, params: {model: DIR, max_length: 1024}}]'
        'reward.functions=[{name: rm, target: reward_model, params: {model: D, max_length: 9, too_long: cut}}]'
    """
    limits = case.run.limits
    needed = limits.prompt_length + limits.completion_length
    for index, function in enumerate(case.run.reward.functions):
        if not _errs_when_too_long(function):
            continue
        most = function.params["max_length"]
        if most < needed:
            yield Finding(
                values={
                    f"reward.functions.{index}.params.max_length": most,
                    "limits.prompt_length": limits.prompt_length,
                    "limits.completion_length": limits.completion_length,
                },
                problem=f"the reward model takes {most} tokens; prompt and completion may have {needed} together",
                why="The first longer one is an error, in the middle of training.",
                fix=f"reward.functions.{index}.params.max_length={needed}, or too_long: truncate_left",
            )


def _errs_when_too_long(function: RewardFunctionConfig) -> bool:
    params: Mapping[str, Any] = function.params
    return (
        function.target == "reward_model"
        and isinstance(params.get("max_length"), int)
        and params.get("too_long", "error") == "error"
    )
