"""Runs one unit: calls the function, holds its return against the contract, turns whatever happens into data."""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.batch import Batch
from rewards.calling.adapters import Bound, MissingColumnError, call
from rewards.calling.logs import LogSink
from rewards.contract import Failure, FailureKind, check_returned, text_of_error
from rewards.running import forks

OWN_FRAMES = (
    "rewards/running/execute.py",
    "rewards/calling/adapters.py",
    "rewards/calling/arguments.py",
    "rewards/calling/sample.py",
    "rewards/calling/logs.py",
    "rewards/calling/post_process.py",
    "rewards/contract.py",
    "rewards/running/progress.py",
)
Watch = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]


@dataclass(slots=True)  # one for every sample: a frozen one takes a microsecond more
class UnitResult:
    """Scores of one unit's samples, in the unit's order."""

    values: list[float | None]
    logs: dict[str, list[Any]]
    failures: list[Failure]


def failed_unit(
    function: str, indices: Sequence[int], message: str, kind: FailureKind, exception: str | None = None
) -> UnitResult:
    """A unit without any score."""
    index = indices[0] if len(indices) == 1 else None
    failure = Failure(function=function, index=index, message=message, kind=kind, exception=exception)
    return UnitResult([None] * len(indices), {}, [failure])


def samples(indices: Sequence[int]) -> str:
    """The samples of a unit, in words."""
    if len(indices) == 1:
        return f"sample {indices[0]}"
    shown = ", ".join(str(i) for i in indices[:8])
    return f"samples {shown}" + (f", ... ({len(indices)} samples)" if len(indices) > 8 else "")


def run_unit(bound: Bound, batch: Batch, indices: Sequence[int]) -> UnitResult:
    """Score `batch`, already cut to `indices`, without a time limit. Never raises, but for KeyboardInterrupt."""
    if bound.signature.is_async:
        return asyncio.run(run_async_unit(bound, batch, indices, limit_s=None))
    return run_sync_unit(bound, batch, indices)


def run_sync_unit(bound: Bound, batch: Batch, indices: Sequence[int]) -> UnitResult:
    """The same for functions that are not async; needs no event loop, so it works inside of one."""
    sink, depth = LogSink(len(indices)), forks.depth
    try:
        raw = call(bound, batch, sink, indices)
        if type(raw) is not list and inspect.isawaitable(raw):  # the second question takes a microsecond
            raw = asyncio.run(_wait(raw, None))
        if forks.depth != depth:
            forks.end_child()
        return _checked(bound, bound.key(batch), raw, indices, sink)
    except BaseException as error:
        if forks.depth != depth:
            forks.end_child(error)
        return _failed_call(bound, indices, error)


async def run_async_unit(
    bound: Bound, batch: Batch, indices: Sequence[int], limit_s: float | None, watch: Watch | None = None
) -> UnitResult:
    """The same on a running loop, cancelled after `limit_s` seconds. `watch` is awaited instead of what it is given."""
    sink, depth = LogSink(len(indices)), forks.depth
    try:
        raw = call(bound, batch, sink, indices)
        if inspect.isawaitable(raw):
            waiting = _wait(raw, limit_s)
            raw = await (watch(waiting) if watch else waiting)
        if forks.depth != depth:
            forks.end_child()
        return _checked(bound, bound.key(batch), raw, indices, sink)
    except BaseException as error:
        if forks.depth != depth:
            forks.end_child(error)
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            raise
        return _failed_call(bound, indices, error)


def _is_being_cancelled() -> bool:
    """Someone cancels us (Ctrl-C under asyncio.run), as opposed to a CancelledError that the function let out."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _LimitReachedError(Exception):
    """Ours, so that a TimeoutError that the function itself raises is not taken for the limit."""


async def _wait(awaitable: Any, limit_s: float | None) -> Any:
    try:
        async with asyncio.timeout(limit_s) as limit:
            value = await awaitable
    except Exception:
        if limit.expired():
            raise _LimitReachedError(limit_s) from None
        raise
    if limit.expired():  # it swallowed the cancellation
        raise _LimitReachedError(limit_s)
    return value


def _checked(bound: Bound, key: str | None, raw: Any, indices: Sequence[int], sink: LogSink) -> UnitResult:
    checked = check_returned(bound.spec.name, key, raw, indices)
    return UnitResult(checked.values, {**sink.logs, **checked.logs}, checked.failures)


def _failed_call(bound: Bound, indices: Sequence[int], error: BaseException) -> UnitResult:
    """SystemExit too: exit() in a reward function is an error of that function, not the end of the worker."""
    name = bound.spec.name
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, _LimitReachedError):
        return failed_unit(name, indices, timeout_message(name, indices, error.args[0]), "timeout")
    if isinstance(error, MissingColumnError):
        return failed_unit(name, indices, str(error), "input")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.endswith(OWN_FRAMES)]
    at = f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    message = f"{name} raised {type(error).__name__} on {samples(indices)}: {text_of_error(error)}{at}"
    return failed_unit(name, indices, message, "exception", type(error).__name__)


def timeout_message(function: str, indices: Sequence[int], limit_s: float) -> str:
    """The same words, whether the worker's event loop or the pool's kill enforced the limit."""
    return f"{function} exceeded its time limit of {limit_s:g} s on {samples(indices)}"
