"""The reward server as an application: its routes, its life, and the form of errors that no route handles."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rewards.calling.targets import LoadError
from rewards.contract import PrepareError
from rewards.protocols import native
from rewards.protocols.common import RequestError
from rewards.protocols.table import PATHS, dialects_of
from rewards.running.inline import Engine
from rewards.running.process import WorkerStartError
from rewards.serving.gold_report import report_unusable
from rewards.serving.handlers import Handlers
from rewards.serving.http_io import error_reply, failure
from rewards.serving.settings import Settings


class ScoringFirst:
    """Calls the handler of the scoring routes at once: FastAPI's layers would cost as much as a small batch.

    They would add nothing: `Handlers.score` answers every error itself.
    """

    def __init__(self, app: ASGIApp, handlers: Handlers) -> None:
        self.app, self.score = app, handlers.score

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in PATHS:
            response = await self.score(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def build_app(settings: Settings, engine: Engine, on_fatal: Callable[[str], None]) -> ASGIApp:
    """The application. It answers at once, with 503 until the engine is warm; `on_fatal` hears why it never will be."""

    async def start() -> None:
        try:
            await engine.start()
            if settings.golds:
                await report_unusable(settings.golds, engine)
        except (LoadError, PrepareError, WorkerStartError) as error:
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

    # No docs pages: they would be open where the rest needs a token. /openapi.json is ours: it stands behind the token.
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    handlers = Handlers(settings, engine)
    app.add_route("/health", handlers.health, methods=["GET"])
    app.add_route("/info", handlers.info, methods=["GET"])
    app.add_route("/metrics", handlers.show_metrics, methods=["GET"])
    app.add_route("/openapi.json", handlers.openapi, methods=["GET"])
    for path in PATHS:
        app.add_route(path, handlers.score, methods=["POST"])
    app.add_exception_handler(RequestError, _request_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _server_error)
    return ScoringFirst(app, handlers)


async def _request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)  # noqa: S101  registered for this type only
    return error_reply(native.render_error, error.status, error.failures)


async def _http_error(request: Request, error: Exception) -> Response:
    """No such route, or another method than it has; in the form of the dialect whose route it is."""
    assert isinstance(error, HTTPException)  # noqa: S101
    dialects = dialects_of(request.url.path)
    render = dialects[0].render_error if dialects else native.render_error
    message = f"{request.method} {request.url.path}: {error.detail}"
    response = error_reply(render, error.status_code, [failure(message, "input")])
    response.headers.update(error.headers or {})
    return response


async def _server_error(request: Request, error: Exception) -> Response:
    return error_reply(native.render_error, 500, [failure(f"internal error: {type(error).__name__}", "exception")])
