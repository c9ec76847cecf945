"""How the server writes JSON, and how exceptions become answers."""

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from orchestrator.generation.errors import ApiError


class AsciiJSON(JSONResponse):
    """JSON that survives lone surrogates, which a caller may send and an error message may echo."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


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
