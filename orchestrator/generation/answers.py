"""How the server writes JSON, and how exceptions become answers."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from orchestrator.generation.errors import ApiError

CLIENT_HAS_GONE = 499  # nginx's word for it; nobody receives it


class AsciiJSON(JSONResponse):
    """JSON that survives lone surrogates, which a caller may send and an error message may echo."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


async def unless_gone(request: Request, work: Coroutine[Any, Any, Any]) -> Response:
    """The JSON of what `work` gives. It is cancelled when the client leaves: nobody would read the answer."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return Response(status_code=CLIENT_HAS_GONE)
        # In a thread: a large answer takes seconds to write, and /health must be answered meanwhile.
        return await asyncio.to_thread(AsciiJSON, working.result())
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def add_error_handlers(app: FastAPI) -> None:
    """Answer every exception in vLLM's error shape."""

    def answer(error: ApiError) -> Response:
        return AsciiJSON(error.body(), status_code=error.status)

    @app.exception_handler(ApiError)
    async def refused(_: Request, error: ApiError) -> Response:
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        # Pydantic spells out the branches of a union after the field; the field is what the caller knows.
        where = [str(part) for part in first["loc"] if part != "body"]
        name = where[0] if where else None
        return answer(ApiError(f"{name or 'body'}: {first['msg']}", param=name))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        return answer(ApiError(str(error.detail), status=error.status_code))

    @app.exception_handler(FloatingPointError)
    async def not_finite(_: Request, error: FloatingPointError) -> Response:
        return answer(ApiError(f"{error}: the weights are broken, send new ones", status=500))

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        return answer(ApiError(f"{type(error).__name__}: {error}", status=500))
