"""The HTTP side of the reward server: routes, token, limits, and what `/health` and `/info` say."""

import asyncio
import hmac
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rewards.contract import Failure
from rewards.inline import Engine
from rewards.process import WorkerStartError
from rewards.protocols import native
from rewards.protocols.native import RequestError, refuse
from rewards.scoring import OnError, combine
from rewards.targets import LoadError

PROTOCOL = "orchestrate-rewards/1"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a server was started with."""

    workers: int
    timeout_s: float
    on_error: OnError
    max_batch: int
    max_body_bytes: int
    token: str | None = field(default=None, repr=False)


@dataclass
class Counters:
    requests: int = 0
    samples_scored: int = 0


class Handlers:
    """One method per route."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.settings, self.engine, self.counters = settings, engine, Counters()

    async def health(self, request: Request) -> Response:
        problem = self.engine.problem()
        if problem is not None:
            refuse(503, problem)
        return JSONResponse({"status": "ok"})

    async def info(self, request: Request) -> Response:
        self._authorise(request)
        if not self.engine.functions:
            refuse(503, self.engine.problem() or "starting")
        return JSONResponse(
            {
                "protocol": PROTOCOL,
                "version": package_version(),
                "pid": os.getpid(),
                "run_id": os.environ.get("ORCHESTRATE_RUN_ID"),
                "functions": [f.to_wire() for f in self.engine.functions],
                "dialects": [native.PATH],
                "workers": self.settings.workers,
                "timeout_s": self.settings.timeout_s,
                "on_error": self.settings.on_error,
                "max_batch": self.settings.max_batch,
                "samples_scored": self.counters.samples_scored,
                "requests": self.counters.requests,
            }
        )

    async def score(self, request: Request) -> Response:
        self._authorise(request)
        self.counters.requests += 1
        began = time.monotonic()
        body = await read_body(request, self.settings.max_body_bytes)
        if problem := self.engine.problem():
            refuse(503, problem)
        asked = native.parse_request(body, self.engine.functions, self.settings.max_batch)
        names = [f.name for f in asked.functions]
        scores = await unless_disconnected(request, self.engine.score(asked.batch, names))
        result = combine(asked.batch, {f.name: f.weight for f in asked.functions}, scores)
        status = native.error_status(result.errors) if result.errors else 200
        if result.errors and (self.settings.on_error == "fail" or status == 503):
            raise RequestError(status, result.errors)
        # Every sample that was answered counts, a masked one too: a client compares this with what it sent.
        self.counters.samples_scored += len(asked.batch)
        return JSONResponse(native.render_reply(result, time.monotonic() - began))

    def _authorise(self, request: Request) -> None:
        """Compares in constant time, so that the token cannot be guessed byte by byte."""
        if self.settings.token is None:
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.settings.token}".encode()):
            refuse(401, "this server needs its bearer token in the Authorization header")


def build_app(settings: Settings, engine: Engine, on_fatal: Callable[[str], None]) -> FastAPI:
    """The application. It answers at once, with 503 until the engine is warm; `on_fatal` hears why it never will be."""

    async def start() -> None:
        try:
            await engine.start()
        except (LoadError, WorkerStartError) as error:
            on_fatal(str(error))
        except Exception as error:  # no process to be had, a bug of ours: better an exit than 503 for ever
            on_fatal(f"starting failed: {type(error).__name__}: {error}")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        starting = asyncio.create_task(start())
        yield
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await engine.close()

    # No docs pages: they would be open where the rest needs a token.
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    handlers = Handlers(settings, engine)
    app.add_route("/health", handlers.health, methods=["GET"])
    app.add_route("/info", handlers.info, methods=["GET"])
    app.add_route(native.PATH, handlers.score, methods=["POST"])
    app.add_exception_handler(RequestError, _request_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _server_error)
    return app


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
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            refuse(499, "the client closed the connection")
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


def package_version() -> str:
    try:
        return version("orchestrate")
    except PackageNotFoundError:
        return "unknown"


async def _request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)  # noqa: S101  registered for this type only
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return JSONResponse(native.render_error(error.failures), status_code=error.status, headers=headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    message = f"{request.method} {request.url.path}: {error.detail}"
    failure = Failure(function=None, index=None, message=message, kind="input")
    return JSONResponse(native.render_error([failure]), status_code=error.status_code, headers=error.headers)


async def _server_error(request: Request, error: Exception) -> Response:
    failure = Failure(function=None, index=None, message=f"internal error: {type(error).__name__}", kind="exception")
    return JSONResponse(native.render_error([failure]), status_code=500)
