"""The score that another reward server gives: one of ours, or Align-Anything's, OpenRLHF's or a remote_rm.

The completions go to `url` in that server's dialect (dialects.py); gold answers and data columns as far as the dialect
carries them. Only what can recover is tried again (forwarding.py), all within `timeout_s`; the time limit of the recipe
must be above that. A reply that breaks its contract is an error that names the address, the sample and the value.

Range: the other server's. Source: the other server.
"""

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from rewards.asking.dialects import DIALECTS, Dialect
from rewards.asking.exchange import Exchange, NoAnswerError
from rewards.asking.forwarding import GATEWAY, Forwarder, address
from rewards.asking.refusal import shown
from rewards.asking.score_reply import RewardError, parse_functions
from rewards.asking.transport import HTTP_OK
from rewards.batch import Batch, Text
from rewards.calling.targets import near
from rewards.client import RewardClient
from rewards.contract import PrepareError
from rewards.printing import printable

CONNECTIONS = 64
"""Requests at once to a server that takes one sample in each."""
REACHABLE_WITHIN_S = 5.0
NO_COLUMNS = frozenset({"trainer_state", "log_metric"})


def prepare(
    *,
    url: str = "",
    dialect: str = "native",
    token_env: str | None = None,
    timeout_s: float = 60.0,
    retries: int = 4,
    functions: Sequence[str] | None = None,
    label_column: str | None = None,
) -> None:
    """Raises PrepareError for bad params, and for a server that does not answer within REACHABLE_WITHIN_S."""
    try:
        chosen = _checked(dialect, timeout_s, retries, functions, label_column)
        target, token = address(url, chosen.path), _token(token_env)
    except ValueError as error:
        raise PrepareError(str(error)) from error
    root = target.removesuffix(chosen.path) if chosen.name == "native" else "/".join(target.split("/", 3)[:3])
    deadline, problem = time.monotonic() + REACHABLE_WITHIN_S, _unreachable(root, chosen)
    while problem and time.monotonic() < deadline:
        time.sleep(0.1)
        problem = _unreachable(root, chosen)
    if problem:
        raise PrepareError(f"{printable(problem)}; start that server first, or correct params.url ({url})")
    if chosen.name == "native":
        _check_functions(root, token, functions or ())


def remote(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    *,
    url: str = "",
    dialect: str = "native",
    token_env: str | None = None,
    timeout_s: float = 60.0,
    retries: int = 4,
    functions: Sequence[str] | None = None,
    label_column: str | None = None,
    statuses: Sequence[str] | None = None,
    group_ids: Sequence[str | int] | None = None,
    evaluation: bool = False,
    log_extra: Any = None,
    **columns: Any,
) -> list[Any]:
    """The other server's numbers; None where a native server says so; dicts of a remote_rm as they come (set `key`).

    `url`: its address; with a path, that route. `token_env`: the environment variable that holds its bearer token.
    `timeout_s`: for all samples of a call, retries and pauses included. `retries`: further attempts per request.
    `functions`: names on a native server, default all. `label_column`: the gold answers of dialects that carry them
    (openrlhf, vime); default `label`, else the usual names. Raises RewardError, and ValueError for bad params.
    """
    chosen = _checked(dialect, timeout_s, retries, functions, label_column)
    data = {name: column for name, column in columns.items() if name not in NO_COLUMNS}
    if label_column is not None:
        if label_column not in data:
            raise ValueError(f"params.label_column: no column {label_column!r}{near(label_column, data)}")
        data["label"] = data[label_column]
    batch = Batch(
        prompts=prompts,
        completions=completions,
        columns=data,
        group_ids=group_ids,
        statuses=statuses,
        evaluation=evaluation,
    )
    extra = {"functions": list(functions)} if functions else {}
    parts = [batch.take([i]) for i in range(len(batch))] if chosen.per_sample else [batch]
    bodies = [_encoded({**chosen.body(part), **extra}) for part in parts]
    replies = _ask_all(_forwarder(address(url, chosen.path), token_env), chosen, bodies, len(batch), timeout_s, retries)
    for name, values in chosen.logs(replies[0], len(batch)).items() if log_extra and not chosen.per_sample else ():
        log_extra(name, values)
    return [item for reply in replies for item in chosen.parse(reply, 1 if chosen.per_sample else len(batch))]


def _ask_all(
    forwarder: Forwarder, dialect: Dialect, bodies: Sequence[bytes], count: int, timeout_s: float, retries: int
) -> list[Any]:
    """Decoded replies that the dialect's parser accepts, in order. The first failure ends the others."""
    deadline = time.monotonic() + timeout_s

    def ask(body: bytes, sample: int | None) -> Any:
        def read(reply: Any) -> Any:
            dialect.parse(reply, count if sample is None else 1)
            return reply

        try:
            return forwarder.ask(body, read, deadline, retries)
        except RewardError as error:
            if sample is None:
                raise
            raise RewardError(f"sample {sample} of {count}: {error}", error.status) from error

    if not dialect.per_sample:
        return [ask(bodies[0], None)]
    futures = [_threads().submit(ask, body, sample) for sample, body in enumerate(bodies)]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


@lru_cache
def _forwarder(target: str, token_env: str | None) -> Forwarder:
    """Kept for the life of the process, and with it the connections."""
    return Forwarder(target, _token(token_env))


@lru_cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="remote-reward")


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"this batch cannot be sent as JSON: {error}") from error


def _checked(dialect: str, timeout_s: Any, retries: Any, functions: Any, label_column: Any) -> Dialect:
    """The dialect. Raises ValueError for params that cannot be meant."""
    if dialect not in DIALECTS:
        raise ValueError(f"params.dialect: there is no {dialect!r}{near(str(dialect), DIALECTS)}")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < float("inf"):
        raise ValueError(f"params.timeout_s must be a number of seconds above 0, not {timeout_s!r}")
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise ValueError(f"params.retries must be 0 or a positive integer, not {retries!r}")
    if functions is not None and (dialect != "native" or isinstance(functions, str)):
        raise ValueError(f"params.functions is a list of names on a native server, not {functions!r} with {dialect}")
    if label_column is not None and not DIALECTS[dialect].takes_labels:
        raise ValueError(f"params.label_column: requests in the {dialect} dialect carry no labels")
    return DIALECTS[dialect]


def _token(token_env: str | None) -> str | None:
    if token_env is None:
        return None
    token = os.environ.get(token_env, "").strip()
    if not token:
        raise ValueError(f"params.token_env: the environment variable {token_env} is unset or empty: export it")
    return token


def _unreachable(root: str, dialect: Dialect) -> str | None:
    """Why nobody can be asked at `root` now, or None. Foreign servers have no health route: any answer will do."""
    exchange = Exchange(root, None)
    try:
        reply = exchange.ask("GET", root + "/health", None, REACHABLE_WITHIN_S)
    except NoAnswerError as error:
        return f"{root} does not answer: {error}"
    finally:
        exchange.close()
    if dialect.name == "native" and reply.status != HTTP_OK:
        return f"{root}/health answered {reply.status}, not 200: {shown(reply.body)}"
    return f"a gateway answers {reply.status} for {root}" if reply.status in GATEWAY else None


def _check_functions(root: str, token: str | None, functions: Sequence[str]) -> None:
    client = RewardClient(root, token, REACHABLE_WITHIN_S)
    try:
        known = [function.name for function in parse_functions(client.info())]
    except RewardError as error:
        raise PrepareError(f"{root}/info: {error}: is this a reward server of ours?") from error
    finally:
        client.close()
    for name in functions:
        if name not in known:
            raise PrepareError(f"params.functions: {root} has no function {name!r}{near(name, known)}")
