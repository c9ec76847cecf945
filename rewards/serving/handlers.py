"""What each route of the reward server does."""

import asyncio
import hmac
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from rewards.batch import Batch
from rewards.calling.post_process import NAME as HOOK_NAME
from rewards.calling.post_process import hook_batch, processed
from rewards.contract import Failure
from rewards.protocols.common import (
    Asked,
    Dialect,
    RequestError,
    Serving,
    error_status,
    parse_object,
    refuse,
)
from rewards.protocols.openapi import document
from rewards.protocols.table import PATHS, dialect_of, dialects_of
from rewards.running.inline import Engine
from rewards.scoring import FunctionScores, ScoreResult, combine
from rewards.serving.http_io import (
    error_reply,
    failure,
    log_samples,
    package_version,
    read_body,
    reply,
    report,
    unless_disconnected,
)
from rewards.serving.metrics import CONTENT_TYPE, Metrics
from rewards.serving.refusals import RefusalLog
from rewards.serving.settings import Settings

PROTOCOL = "orchestrate-rewards/1"
LARGE_BODY = 2**20  # bytes; from here a body is read and checked in a thread, so that /health goes on answering
READERS = 32  # threads for that: a small request must not wait for the end of some large ones
CLIENT_GONE = 499  # nobody reads it; it is a label of the metrics


@dataclass
class Counters:
    requests: int = 0
    samples_scored: int = 0
    waiting: int = 0
    """Samples that are being scored or wait for it."""


class Handlers:
    """One method per route."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.settings, self.engine, self.counters, self.metrics = settings, engine, Counters(), Metrics()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="reader")  # long reading holds up nothing else
        self.refusals = RefusalLog(with_words=settings.log_samples)
        self.metrics.watch("rewards_queue_samples", "Samples waiting or being scored", lambda: self.counters.waiting)
        self.metrics.watch("rewards_ready", "1 when samples can be scored", lambda: float(engine.problem() is None))
        self.metrics.watch("rewards_workers_alive", "Worker processes that can be used", lambda: engine.workers_alive)
        self.metrics.watch("rewards_worker_restarts", "Workers replaced since the start", lambda: engine.restarts)

    async def health(self, request: Request) -> Response:
        problem = self.engine.problem()
        if problem is not None:
            refuse(503, problem)
        return reply({"status": "ok"})

    async def info(self, request: Request) -> Response:
        self.authorise(request)
        if not self.engine.functions:
            refuse(503, self.engine.problem() or "starting")
        settings = self.settings
        return reply(
            {
                "protocol": PROTOCOL,
                "version": package_version(),
                "pid": os.getpid(),
                "run_id": os.environ.get("ORCHESTRATE_RUN_ID"),
                "functions": [f.to_wire() for f in self.engine.functions],
                "dialects": PATHS,
                "workers": settings.workers,
                "timeout_s": settings.timeout_s,
                "request_timeout_s": settings.request_timeout_s,
                "on_error": settings.on_error,
                "max_batch": settings.max_batch,
                "max_queue": settings.max_queue,
                "gold": settings.golds.describe() if settings.golds else None,
                "samples_scored": self.counters.samples_scored,
                "requests": self.counters.requests,
            }
        )

    async def show_metrics(self, request: Request) -> Response:
        self.authorise(request)
        return Response(self.metrics.render(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        self.authorise(request)
        return reply(document(package_version(), needs_token=self.settings.token is not None))

    async def score(self, request: Request) -> Response:
        """Every dialect's route. Whatever happens, the answer is JSON in the dialect's form."""
        state = request.state
        # The path from the scope: `request.url` would be put together, and taken apart, for every request.
        state.dialect, state.arrived = dialects_of(request.scope["path"])[0], False
        limit_s = self.settings.request_timeout_s
        try:
            async with asyncio.timeout(limit_s) as limit:
                content = await self._answer(request)
            response = reply(content)
        except RequestError as error:
            response = self._refusal(state.dialect, error.status, error.failures)
        except ClientDisconnect:
            response = self._refusal(state.dialect, CLIENT_GONE, [failure("the client closed the connection", "input")])
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                status, words = (504, "not done") if state.arrived else (408, "the request did not arrive")
                message = f"{words} within {limit_s:g} s (--request-timeout-s)"
                response = self._refusal(state.dialect, status, [failure(message, "timeout")])
            else:
                report(error)
                message = f"internal error: {type(error).__name__}"
                response = self._refusal(state.dialect, 500, [failure(message, "exception")])
        self.metrics.request(state.dialect.name, response.status_code)
        return response

    async def _answer(self, request: Request) -> Any:
        """Raises RequestError."""
        self.authorise(request)
        self.counters.requests += 1
        began = time.monotonic()
        body = await read_body(request, self.settings.max_body_bytes)
        request.state.arrived = True
        if problem := self.engine.problem():
            refuse(503, problem)
        over = threading.Event()
        serving = Serving(
            functions=tuple(f for f in self.engine.functions if not f.is_hook),
            max_batch=self.settings.max_batch,
            has_hook=any(f.is_hook for f in self.engine.functions),
            golds=self.settings.golds,
            end_texts=self.settings.end_texts,
            given_up=over.is_set,
        )
        # A question that the gold file has in other words takes longer than one that it has; a large body takes long.
        slow = len(body) >= LARGE_BODY or (serving.golds is not None and request.state.dialect.looks_up_gold)
        try:
            if slow:
                loop = asyncio.get_running_loop()
                asked = await loop.run_in_executor(self._readers, self._ask, request, body, serving)
            else:
                asked = self._ask(request, body, serving)
        finally:
            over.set()
        with self._room_for(len(asked.batch)):
            result = await unless_disconnected(request, self.scored(asked))
        dialect: Dialect = request.state.dialect
        query = request.query_params if request.scope["query_string"] else {}
        content = dialect.render(result, time.monotonic() - began, query)
        # Every sample that was answered counts, a masked one too: a client compares this with what it sent.
        self.counters.samples_scored += len(asked.batch)
        self.metrics.samples(dialect.name, len(asked.batch))
        self.metrics.errors(result.errors)
        if self.settings.log_samples:
            log_samples(dialect.name, asked, result)
        return content

    def _ask(self, request: Request, body: bytes, serving: Serving) -> Asked:
        raw = parse_object(body, request.state.dialect.not_an_object)
        request.state.dialect = dialect_of(request.scope["path"], raw)
        return request.state.dialect.parse(raw, serving)  # type: ignore[no-any-return]  # state is untyped

    async def scored(self, asked: Asked) -> ScoreResult:
        """The one way from a batch to rewards, for all dialects. Raises RequestError for unmasked failures."""
        scores = await self._timed(asked.batch, [f.name for f in asked.functions])
        result = self._unless_failed(combine(asked.batch, {f.name: f.weight for f in asked.functions}, scores))
        # Held-out scores are for people: what a hook makes of rewards is for training only.
        if asked.batch.evaluation or not any(f.is_hook for f in self.engine.functions):
            return result
        hooked = await self._timed(hook_batch(asked.batch, result), [HOOK_NAME])
        return self._unless_failed(processed(asked.batch, result, hooked[HOOK_NAME]))

    def _unless_failed(self, result: ScoreResult) -> ScoreResult:
        status = error_status(result.errors) if result.errors else 200
        if result.errors and (self.settings.on_error == "fail" or status == 503):
            raise RequestError(status, result.errors)
        return result

    async def _timed(self, batch: Batch, names: Sequence[str]) -> dict[str, FunctionScores]:
        """These functions over the batch, side by side, with the seconds that each took."""

        async def one(name: str) -> FunctionScores:
            began = time.monotonic()
            try:
                return (await self.engine.score(batch, [name]))[name]
            finally:
                self.metrics.function(name, time.monotonic() - began)

        if len(names) == 1:  # the usual case, without a task
            return {names[0]: await one(names[0])}
        return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))

    @contextmanager
    def _room_for(self, count: int) -> Iterator[None]:
        waiting, limit = self.counters.waiting, self.settings.max_queue
        if waiting + count > limit:
            refuse(
                503, f"{waiting} samples are waiting, with these {count} they would be more than {limit} (--max-queue)"
            )
        self.counters.waiting += count
        try:
            yield
        finally:
            self.counters.waiting -= count

    def _refusal(self, dialect: Dialect, status: int, failures: Sequence[Failure]) -> Response:
        self.metrics.errors(failures)
        self.refusals.note(dialect.name, status, failures)
        return error_reply(dialect.render_error, status, failures)

    def authorise(self, request: Request) -> None:
        """Compares in constant time, so that the token cannot be guessed byte by byte."""
        if self.settings.token is None:
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.settings.token}".encode()):
            refuse(401, "this server needs its bearer token in the Authorization header")
