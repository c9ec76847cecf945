"""How other reward servers are asked and what they answer: for each dialect the body of a request and a strict parser.

Whoever talks to a server that is not ours (the built-in `remote`, `reward probe`) takes both from here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.asking.score_reply import RewardError, json_number, parse_reply
from rewards.batch import Batch, golds_of
from rewards.contract import short_repr
from rewards.functions.text import conversation_of, question_of, text_of


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One way to ask for scores over HTTP POST with JSON."""

    name: str
    path: str
    """Where a server of this dialect answers, unless its user chose another route."""
    per_sample: bool
    """One request for each sample: `body` then takes a batch of one."""
    takes_labels: bool
    """Whether gold answers travel with the request."""
    body: Callable[[Batch], dict[str, Any]]
    parse: Callable[[Any, int], list[Any]]
    """(decoded JSON, number of samples) -> one item per sample: a finite number; of native servers also None ("not
    mine"), of remote_rm servers also a dict. Raises RewardError that names sample and value."""
    logs: Callable[[Any, int], dict[str, list[Any]]]
    """What else the reply says per sample; only for replies that `parse` accepts."""


def _labels(batch: Batch) -> list[Any]:
    golds = golds_of(batch)
    return [None] * len(batch) if golds is None else golds


def _native_body(batch: Batch) -> dict[str, Any]:
    return {
        "prompts": list(batch.prompts),
        "completions": list(batch.completions),
        "columns": {name: list(column) for name, column in batch.columns.items()},
        "group_ids": None if batch.group_ids is None else list(batch.group_ids),
        "statuses": None if batch.statuses is None else list(batch.statuses),
        "evaluation": batch.evaluation,
    }


def _native_parse(reply: Any, count: int) -> list[Any]:
    return list(parse_reply(_object(reply), count).rewards)


def _native_logs(reply: Any, count: int) -> dict[str, list[Any]]:
    parsed = parse_reply(_object(reply), count)
    components = parsed.components if len(parsed.components) > 1 else {}  # of one function: the reward itself
    logs = {**components, **_per_sample(parsed.logs, count)}
    if parsed.errors:  # that server masks; here nobody would hear why a sample has no score
        words: list[str | None] = [None] * count
        for error in parsed.errors:
            hit = range(count) if error.get("index") is None else [error["index"]]
            words = [error["message"] if i in hit else said for i, said in enumerate(words)]
        logs["remote_error"] = words
    return logs


def _align_anything_body(batch: Batch) -> dict[str, Any]:
    """The bare question, as their client sends it: golds are looked up by it on the server."""
    return {
        "prompts": [question_of(prompt) for prompt in batch.prompts],
        "responses": [text_of(completion) for completion in batch.completions],
    }


def _openrlhf_body(batch: Batch) -> dict[str, Any]:
    """`query` is prompt and completion in one text; without their tokenizer, messages have no template around them."""
    prompts = [conversation_of(prompt) for prompt in batch.prompts]
    completions = [text_of(completion) for completion in batch.completions]
    queries = [prompt + completion for prompt, completion in zip(prompts, completions, strict=True)]
    return {"query": queries, "prompts": prompts, "labels": _labels(batch)}


def _rewards_parse(reply: Any, count: int) -> list[Any]:
    raw = _object(reply)
    if "rewards" not in raw:
        raise RewardError(f"the reply has no 'rewards' (it has {[str(key) for key in raw]})")
    column = raw["rewards"]
    if not isinstance(column, list) or len(column) != count:
        got = f"{len(column)} entries" if isinstance(column, list) else f"a {type(column).__name__}"
        raise RewardError(f"the reply's rewards: {got} for {count} samples")
    return [finite(value, index) for index, value in enumerate(column)]


def _openrlhf_logs(reply: Any, count: int) -> dict[str, list[Any]]:
    extra = reply.get("extra_logs")
    return _per_sample({"scores": reply.get("scores"), **(extra if isinstance(extra, Mapping) else {})}, count)


def _remote_rm_body(batch: Batch) -> dict[str, Any]:
    (prompt,), (completion,), (label,) = batch.prompts, batch.completions, _labels(batch)
    return {"prompt": prompt, "response": text_of(completion), "label": label}


def _remote_rm_parse(reply: Any, count: int) -> list[Any]:
    return [dict(reply) if isinstance(reply, Mapping) else finite(reply, 0)]


def _no_logs(reply: Any, count: int) -> dict[str, list[Any]]:
    return {}


def _object(reply: Any) -> Mapping[str, Any]:
    if not isinstance(reply, Mapping):
        raise RewardError(f"the reply is a {type(reply).__name__}, not an object")
    return reply


def finite(value: Any, sample: int) -> float:
    """The number that a server gave to a sample. Raises RewardError for anything else, true and false included."""
    number = json_number(value)
    if number is None:
        raise RewardError(f"the reply holds {short_repr(value)} for sample {sample} instead of a finite number")
    return number


def _per_sample(columns: Mapping[str, Any], count: int) -> dict[str, list[Any]]:
    return {name: column for name, column in columns.items() if isinstance(column, list) and len(column) == count}


_ALL: Sequence[Dialect] = (
    Dialect(
        name="native",
        path="/v1/score",
        per_sample=False,
        takes_labels=False,
        body=_native_body,
        parse=_native_parse,
        logs=_native_logs,
    ),
    Dialect(
        name="align_anything",
        path="/get_reward",
        per_sample=False,
        takes_labels=False,
        body=_align_anything_body,
        parse=_rewards_parse,
        logs=_no_logs,
    ),
    Dialect(
        name="openrlhf",
        path="/get_reward",
        per_sample=False,
        takes_labels=True,
        body=_openrlhf_body,
        parse=_rewards_parse,
        logs=_openrlhf_logs,
    ),
    Dialect(
        name="vime",
        path="/remote_rm",
        per_sample=True,
        takes_labels=True,
        body=_remote_rm_body,
        parse=_remote_rm_parse,
        logs=_no_logs,
    ),
)
DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
