"""Requests in, replies out, and what is said on stderr."""

import asyncio
import os
import traceback
from collections.abc import Callable, Coroutine, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from rewards.contract import Failure, FailureKind
from rewards.json_codec import encode
from rewards.protocols.common import Asked, refuse
from rewards.running.output import stderr
from rewards.scoring import ScoreResult

RETRY_AFTER_S = 1
WATCH_AFTER_S = 0.02  # of work, before anybody looks whether the client is still there
FRAMES = 6  # of a traceback, innermost first
HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    408: {"Connection": "close"},  # what the client still sends would be taken for its next request
    503: {"Retry-After": str(RETRY_AFTER_S)},
}

T = TypeVar("T")


async def read_body(request: Request, limit: int) -> bytes:
    """The body. One that is too long is read to its end but not kept: a client that still sends hears no answer."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
    if size > limit:
        refuse(413, f"the body has {size} bytes, at most {limit} are accepted (--max-body-mb)")
    return b"".join(chunks)


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Cancel the work when the client has gone, so that its retry does not come on top of it."""
    task, watchers = asyncio.current_task(), list[asyncio.Task[None]]()
    assert task is not None  # noqa: S101  a coroutine of a request runs in a task
    left = False

    async def cancel_when_gone() -> None:
        nonlocal left
        await request.receive()  # after the body, nothing comes but the end
        left = True
        task.cancel()

    loop = asyncio.get_running_loop()
    # Most answers are there before: no second task for them.
    timer = loop.call_later(WATCH_AFTER_S, lambda: watchers.append(loop.create_task(cancel_when_gone())))
    try:
        return await work
    except asyncio.CancelledError:
        if not left:
            raise
        task.uncancel()
        refuse(499, "the client closed the connection")
    finally:
        timer.cancel()
        for watcher in watchers:
            watcher.cancel()


def reply(content: Any) -> Response:
    return Response(encode(content), media_type="application/json")


def error_reply(render: Callable[[Sequence[Failure]], Any], status: int, failures: Sequence[Failure]) -> Response:
    headers = HEADERS.get(status)
    return Response(encode(render(failures)), status_code=status, headers=headers, media_type="application/json")


def failure(message: str, kind: FailureKind) -> Failure:
    return Failure(function=None, index=None, message=message, kind=kind)


def report(error: BaseException) -> None:
    """A bug of ours, on stderr, by type and place. Not its message, which may quote a prompt."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-FRAMES:])
    where = " < ".join(f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)
    say(f"internal error: {type(error).__name__} at {where}")


def log_samples(dialect: str, asked: Asked, result: ScoreResult) -> None:
    """One JSON line per sample on stderr: what `--log-samples` asks for."""
    batch = asked.batch
    lines = [
        encode(
            {
                "dialect": dialect,
                "index": index,
                "prompt": batch.prompts[index],
                "completion": batch.completions[index],
                "columns": {name: column[index] for name, column in batch.columns.items()},
                "components": {name: column[index] for name, column in result.components.items()},
                "reward": result.rewards[index],
            }
        )
        for index in range(len(batch))
    ]
    _write("".join(f"{line.decode()}\n" for line in lines))


def say(message: str) -> None:
    """A line in the server's log. It must hold nothing of a prompt, a completion or a gold answer."""
    _write(f"rewards.server: {message}\n")


def _write(text: str) -> None:
    stderr.write(text.encode(errors="backslashreplace"))


def package_version() -> str:
    try:
        return version("orchestrate")
    except PackageNotFoundError:
        return "unknown"
