"""`/openapi.json`: the routes of the server, with the schemas that stand beside each dialect's parser."""

from collections.abc import Mapping
from typing import Any

from rewards.protocols import native
from rewards.protocols.common import Dialect
from rewards.protocols.table import PATHS, dialects_of

OK = {"200": "scored"}
REFUSALS = {
    "400": "not JSON, or (in Align-Anything's dialect) a body that it cannot mean",
    "401": "the bearer token is missing or wrong",
    "408": "the request did not arrive in time",
    "413": "too many samples or bytes",
    "422": "a body that the dialect does not allow",
    "500": "a reward function failed or broke its contract",
    "503": "not ready, or too many samples are waiting; Retry-After says when to come again",
    "504": "a time limit was reached",
}


def document(version: str, *, needs_token: bool) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    paths: dict[str, Any] = {path: {"post": _score(path)} for path in PATHS}
    paths["/health"] = {
        "get": _get("200 when samples can be scored", {"200": "ready", "503": "starting or broken"}, [])
    }
    guard: list[Any] = [{"bearer": []}] if needs_token else []
    for path, says in (
        ("/info", "The functions, their self-tests, the limits, the gold file and the counts."),
        ("/openapi.json", "This document."),
    ):
        paths[path] = {"get": _get(says, {"200": "an object", **_guarded("401", "503")}, guard)}
    paths["/metrics"] = {"get": _get("Prometheus' text format.", {"200": "metrics", **_guarded("401")}, guard)}
    paths["/metrics"]["get"]["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    for path in PATHS:
        paths[path]["post"]["security"] = guard
    return {
        "openapi": "3.1.0",
        "info": {"title": "rewards.server", "version": version},
        "paths": paths,
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _score(path: str) -> dict[str, Any]:
    spoken = dialects_of(path)
    replies = {code: _reply(says, _any_of(spoken, "reply")) for code, says in OK.items()}
    replies |= {code: _reply(says, _any_of(spoken, "error")) for code, says in REFUSALS.items()}
    replies["503"]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
    return {
        "operationId": path.rpartition("/")[2],
        "summary": " ".join(dialect.says for dialect in spoken),
        "parameters": [parameter for dialect in spoken for parameter in dialect.query],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _any_of(spoken, "body")}},
        },
        "responses": replies,
    }


def _any_of(spoken: tuple[Dialect, ...], part: str) -> Any:
    schemas: list[Any] = []
    for dialect in spoken:
        schema: Mapping[str, Any] = getattr(dialect, part)
        if schema not in schemas:
            schemas.append(schema)
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _get(says: str, replies: Mapping[str, str], security: list[Any]) -> dict[str, Any]:
    responses = {
        code: _reply(words, {"type": "object"} if code == "200" else native.DIALECT.error)
        for code, words in replies.items()
    }
    return {"summary": says, "responses": responses, "security": security}


def _guarded(*codes: str) -> dict[str, str]:
    return {code: REFUSALS[code] for code in codes}


def _reply(says: str, schema: Any) -> dict[str, Any]:
    return {"description": says, "content": {"application/json": {"schema": schema}}}
