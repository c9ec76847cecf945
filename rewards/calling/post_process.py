"""The post-process hook: after the functions, it sees whole groups with their rewards and decides what is trained on.

It is loaded and run as one more function over the whole batch, so that it has a worker and a time limit as they have.
Two signatures: `f(args, samples)` as in vime, where `sample.reward` is the weighted total, and
`f(rewards, group_ids, components, **columns)`. Both return `(raw, processed)`: raw is logged, processed trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rewards.batch import Batch
from rewards.calling.sample import Args, Sample
from rewards.contract import Failure, FunctionSpec, Odd, finite_number

if TYPE_CHECKING:
    from rewards.calling.signature import Signature
    from rewards.scoring import FunctionScores, ScoreResult

NAME = "post_process"
COMPLETED, ABORTED = "completed", "aborted"
RAW, PROCESSED = "raw", "processed"
# With a colon: no parameter of a function, so no data column that one could want, is called so.
REWARDS_COLUMN, COMPONENTS_COLUMN = "post_process:rewards", "post_process:components"
HOOK_INPUTS = frozenset({"args", "samples", "rewards", "group_ids", "components", "prompts", "completions", "statuses"})


def hook_spec(target: str, params: Mapping[str, Any] | None = None) -> FunctionSpec:
    """The hook, as a function that pools and scorers can run."""
    return FunctionSpec(name=NAME, target=target, key=PROCESSED, params=params or {}, shape="post_process")


def hook_batch(batch: Batch, result: "ScoreResult") -> Batch:
    """The batch with totals and components as two columns more. Samples without a reward count as aborted, so that no
    call gets them, and the others keep their numbers."""
    statuses = list(batch.statuses or [COMPLETED] * len(batch))
    for index, reward in enumerate(result.rewards):
        if reward is None:
            statuses[index] = ABORTED
    parts = [{name: column[i] for name, column in result.components.items()} for i in range(len(batch))]
    columns = {**batch.columns, REWARDS_COLUMN: result.rewards, COMPONENTS_COLUMN: parts}
    return replace(batch, columns=columns, statuses=statuses)


def processed(batch: Batch, result: "ScoreResult", scores: "FunctionScores") -> "ScoreResult":
    """`result` with what the hook made of its rewards; `scores` are over `hook_batch`."""
    raw: list[float | None] = scores.logs.get(RAW, [None] * len(batch))
    errors = list(scores.failures)
    for index, before in enumerate(result.rewards):
        if before is not None and scores.values[index] is None and index not in scores.failed:
            message = f"{NAME} returned None as the processed reward of sample {index}"
            errors.append(Failure(function=NAME, index=index, message=message))
    return replace(result, rewards=scores.values, raw=raw, errors=[*result.errors, *errors])


def hook_arguments(
    signature: "Signature", args: Args, batch: Batch, samples: Sequence[Sample], by_name: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a hook, in the signature that it has."""
    totals, parts = list(batch.columns[REWARDS_COLUMN]), list(batch.columns[COMPONENTS_COLUMN])
    if signature.parameters[1:2] == ("samples",):
        for sample, total, part in zip(samples, totals, parts, strict=True):
            sample.reward = total
            sample.metadata["rewards"] = part
        return (args, list(samples)), {}
    offered: dict[str, Any] = {
        **by_name,
        "rewards": totals,
        "components": {name: [part[name] for part in parts] for name in (parts[0] if parts else {})},
        "group_ids": list(batch.group_ids) if batch.group_ids is not None else None,
    }
    return (), {name: value for name, value in offered.items() if signature.accepts(name)}


def hook_items(raw: Any, count: int) -> Any:
    """One {processed, raw} per sample, or what came instead of two lists of `count` numbers."""
    expected = f"(raw, processed), two lists of {count} numbers"
    if not isinstance(raw, (tuple, list)) or len(raw) != 2 or not all(_ordered(part) for part in raw):
        return Odd(_words(raw), expected)
    before, after = (part.tolist() if hasattr(part, "tolist") else list(part) for part in raw)
    for name, part in ((RAW, before), (PROCESSED, after)):
        if len(part) != count:
            return Odd(f"{len(part)} {name} rewards", expected)
        for index, value in enumerate(part):
            if name == RAW and (problem := finite_number(value)[1]):
                return Odd(f"{problem} as {name}[{index}]", expected)
    return [{PROCESSED: value, RAW: other} for value, other in zip(after, before, strict=True)]


def _ordered(part: object) -> bool:
    return isinstance(part, (list, tuple)) or getattr(part, "ndim", None) == 1


def _words(raw: object) -> str:
    if isinstance(raw, (tuple, list)):
        kinds = ", ".join(type(part).__name__ for part in raw[:3]) + (", ..." if len(raw) > 3 else "")
        return f"a {type(raw).__name__} of {len(raw)} ({kinds})"
    return f"a {type(raw).__name__}"
