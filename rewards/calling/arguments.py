"""From a batch to the arguments of each calling convention, and from what came back to one item per sample."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rewards.batch import Batch, golds_of
from rewards.calling.foreign_modules import sample_class
from rewards.calling.logs import LogSink
from rewards.calling.post_process import COMPONENTS_COLUMN, REWARDS_COLUMN, hook_arguments, hook_items
from rewards.calling.sample import Sample, make_args
from rewards.calling.signature import Signature
from rewards.contract import FunctionSpec, Odd, Shape
from rewards.functions.text import conversation_of, question_of, text_of

NO_INDICES: Sequence[int] = ()
NO_METADATA = ("completion_ids", REWARDS_COLUMN, COMPONENTS_COLUMN)


def call_function(
    function: Callable[..., Any],
    signature: Signature,
    shape: Shape,
    spec: FunctionSpec,
    batch: Batch,
    sink: LogSink,
    indices: Sequence[int] = NO_INDICES,
) -> Any:
    """The function's result as one item per sample, or an awaitable of that."""
    by_name = _by_name(signature, spec, batch, sink)
    if shape == "trl":
        return function(**by_name)
    key = spec.eval_key or spec.key if batch.evaluation else spec.key
    args = make_args(spec.params, key if shape != "post_process" else None)
    if shape == "vime_sample":
        (sample,) = samples_of(batch, indices)
        return _then(function(args, sample, **by_name), _alone)
    if shape == "vime_group":
        return function(args, samples_of(batch, indices), **by_name)
    if shape == "post_process":
        positional, named = hook_arguments(signature, args, batch, samples_of(batch, indices), by_name)
        return _then(function(*positional, **named), lambda raw: hook_items(raw, len(batch)))
    texts = [text_of(completion) for completion in batch.completions]
    golds = golds_of(batch)
    if shape == "align_anything":
        takes_gold = len(signature.parameters) > 2  # their own three; the third is optional in their contract too
        return function([question_of(p) for p in batch.prompts], texts, *([golds] if takes_gold else []), **by_name)
    prompts = [conversation_of(prompt) for prompt in batch.prompts]
    queries = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    labels = [None] * len(batch) if golds is None else golds
    return _then(function(queries, prompts, labels, **by_name), lambda raw: _openrlhf_items(raw, sink))


def samples_of(batch: Batch, indices: Sequence[int] = NO_INDICES) -> list[Sample]:
    """The batch as vime and slime see it."""
    golds, ids = golds_of(batch), batch.columns.get("completion_ids")
    others = {name: column for name, column in batch.columns.items() if name not in NO_METADATA}
    made_of = sample_class()
    return [
        made_of(
            prompt=prompt,
            response=text_of(batch.completions[i]),
            label=golds[i] if golds is not None else None,
            group_index=batch.group_ids[i] if batch.group_ids is not None else None,
            index=indices[i] if indices else None,
            status=made_of.Status(batch.statuses[i] if batch.statuses is not None else "completed"),
            tokens=list(ids[i]) if ids is not None else None,
            response_length=len(ids[i]) if ids is not None else None,
            metadata=_metadata({name: column[i] for name, column in others.items()}),
        )
        for i, prompt in enumerate(batch.prompts)
    ]


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    own = row.get("metadata")
    return {**row, **own} if isinstance(own, Mapping) else row


def _by_name(signature: Signature, spec: FunctionSpec, batch: Batch, sink: LogSink) -> dict[str, Any]:
    """What TRL passes by keyword, but for columns that the function has no parameter for (TRL would raise TypeError).

    Other frameworks pass nothing by keyword, so their functions get only what they name.
    """
    offered: dict[str, Any] = {
        "trainer_state": None,
        "log_extra": sink.extra,
        "log_metric": sink.metric,
        "evaluation": batch.evaluation,
        "group_ids": list(batch.group_ids) if batch.group_ids is not None else None,
        "statuses": list(batch.statuses) if batch.statuses is not None else ["completed"] * len(batch),
        **{name: list(column) for name, column in batch.columns.items()},
        **spec.params,
        "prompts": list(batch.prompts),
        "completions": list(batch.completions),
    }
    if signature.shape == "trl" and signature.accepts_kwargs:
        return offered
    if signature.shape == "trl":
        return {name: value for name, value in offered.items() if signature.accepts(name)}
    return {name: offered[name] for name in signature.by_name if name in offered}


def _then(raw: Any, finish: Callable[[Any], Any]) -> Any:
    """`finish` what came, now or when it has been awaited."""
    if not inspect.isawaitable(raw):
        return finish(raw)

    async def wait(awaited: Awaitable[Any]) -> Any:
        return finish(await awaited)

    return wait(raw)


def _alone(item: Any) -> Any:
    """A single sample's reward. A list of one is a group function's answer: which is meant is not guessed."""
    return Odd(f"a {type(item).__name__}", "a number or a dict") if isinstance(item, (list, tuple)) else [item]


def _openrlhf_items(raw: Any, sink: LogSink) -> Any:
    """Of their dict, `rewards` counts; `scores` and `extra_logs` are logged."""
    if not isinstance(raw, Mapping):
        return raw
    if "rewards" not in raw:
        return Odd(f"a dict without 'rewards' (it has {[str(key) for key in raw]})", "rewards, scores, extra_logs")
    extra = raw.get("extra_logs") or {}
    for name, column in {"scores": raw.get("scores"), **extra}.items():
        values = column.tolist() if hasattr(column, "tolist") else column
        if isinstance(values, (list, tuple)) and len(values) == sink.count:
            sink.extra(name, values)  # noqa: S610  no Django here
        elif values is not None and not isinstance(values, (list, tuple)):
            sink.metric(name, values)
    return raw["rewards"]
