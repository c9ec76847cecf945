"""The calling conventions of reward functions, as data, and which one a function's parameters show."""

from collections.abc import Sequence
from dataclasses import dataclass

from rewards.contract import Granularity, Shape


@dataclass(frozen=True, kw_only=True)
class Convention:
    """How functions of one framework are called. `granularities`: the units that make sense, the usual one first."""

    positional: tuple[str, ...]
    """What is passed by position, whatever the parameters are called; the rest, and with () all, goes by name."""
    granularities: tuple[Granularity, ...]
    says: str
    """The signature and its result, for messages and documents."""


CONVENTIONS: dict[Shape, Convention] = {
    "trl": Convention(
        positional=(),
        granularities=("batch", "sample", "group"),
        says="f(prompts, completions, **columns) -> list (TRL)",
    ),
    "vime_sample": Convention(
        positional=("args", "sample"),
        granularities=("sample",),
        says="f(args, sample) -> number or dict (vime, slime)",
    ),
    "vime_group": Convention(
        positional=("args", "samples"),
        granularities=("group", "batch"),
        says="f(args, samples) -> list (vime, slime with --group-rm)",
    ),
    "align_anything": Convention(
        positional=("prompts", "responses", "golden_responses"),
        granularities=("batch", "sample", "group"),
        says="f(prompts, responses, golden_responses) -> list (Align-Anything)",
    ),
    "openrlhf": Convention(
        positional=("queries", "prompts", "labels"),
        granularities=("batch", "sample", "group"),
        says="f(queries, prompts, labels) -> tensor, list or {rewards, scores, extra_logs} (OpenRLHF)",
    ),
    "post_process": Convention(
        positional=(),
        granularities=("batch",),
        says="f(args, samples) or f(rewards, group_ids, **columns) -> (raw, processed) (a hook, no reward function)",
    ),
}


def recognise(parameters: Sequence[str], *, accepts_kwargs: bool) -> Shape | None:
    """The shape whose telling name is among the parameters; None where nothing shows it."""
    second = parameters[1] if len(parameters) > 1 else ""
    if "completions" in parameters:
        return "trl"
    if second == "sample":
        return "vime_sample"
    if second == "samples":
        return "vime_group"
    if second in ("responses", "response"):
        return "align_anything"
    if parameters[:1] == ("queries",) and second == "prompts":
        return "openrlhf"
    return "trl" if accepts_kwargs else None
