"""Small servers that speak as other systems do, with their faults, for the probe to find."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GOLDS = {"What is 1+1?": "2", "Half as a fraction?": "\\frac{1}{2}"}
Handle = Callable[["Request"], tuple[int, bytes | None]]
"""(status, body); a body of None: never answer."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: bytes
    content_type: str
    authorization: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def serving(handle: Handle) -> Iterator[str]:
    """The server's address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            headers = self.headers.get("Content-Type", ""), self.headers.get("Authorization", "")
            status, body = handle(Request(self.command, self.path, self.rfile.read(length), *headers))
            if body is None:
                closed.wait(20)
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815  the name that http.server calls

        def log_message(self, *args: object) -> None: ...

    closed = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        closed.set()
        server.shutdown()
        server.server_close()


def error(status: int, words: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": words}).encode()


def nearest_gold(prompt: str) -> str:
    return GOLDS[max(GOLDS, key=lambda question: SequenceMatcher(None, prompt, question).ratio())]


def align_anything(
    grade: Callable[[str, str], Any] = lambda response, gold: 1.5 if f"<answer>\\boxed{{{gold}}}" in response else 0.5,
    *,
    dataset: bool = True,
    spoil: Callable[[list[Any]], Any] = list,
) -> Handle:
    """Its server: 500 for the client's faults, golds by the nearest question, no health route."""

    def handle(request: Request) -> tuple[int, bytes]:
        if request.path != "/get_reward":
            return 404, b"<!doctype html><title>404 Not Found</title>"
        if request.method != "POST":
            return 405, b"<!doctype html><title>405 Method Not Allowed</title>"
        if request.content_type != "application/json":
            return error(500, "415 Unsupported Media Type: Did not attempt to load JSON data")
        try:
            raw = request.json
        except ValueError:
            return error(
                500, "400 Bad Request: The browser (or proxy) sent a request that this server could not understand."
            )
        try:
            if "prompts" not in raw or "responses" not in raw:
                return error(400, "prompts and responses are required")
            if not dataset and raw["prompts"]:
                return error(500, "None")
            golds = [nearest_gold(prompt) for prompt in raw["prompts"]]
            if len(raw["prompts"]) != len(raw["responses"]):
                return error(400, "The number of prompts and responses must be the same")
            rewards = [grade(response, gold) for response, gold in zip(raw["responses"], golds, strict=True)]
        except TypeError as problem:
            return error(500, str(problem))
        return 200, json.dumps({"rewards": spoil(rewards)}).encode()

    return handle


def openrlhf(request: Request) -> tuple[int, bytes]:
    """A server as its examples are: no check of the fields, a page of text for what it raises."""
    if (request.method, request.path) != ("POST", "/get_reward"):
        return 404, b'{"detail":"Not Found"}'
    try:
        raw = request.json
        rows = zip(raw["query"], raw["prompts"], raw["labels"], strict=False)
        scores = [float(label in query[len(prompt) :]) for query, prompt, label in rows]
    except (ValueError, KeyError, TypeError, AttributeError):
        return 500, b"Internal Server Error"
    return 200, json.dumps({"rewards": scores, "scores": scores, "extra_logs": {"len": [1.0] * len(scores)}}).encode()


def remote_rm(request: Request) -> tuple[int, bytes]:
    """One sample a request, at `/`; a number, whatever the sample is."""
    if (request.method, request.path) != ("POST", "/"):
        return 404, b""
    try:
        raw = request.json
    except ValueError:
        return 400, b'"no JSON"'
    response = raw.get("response") if isinstance(raw, dict) else None
    return 200, json.dumps(float(isinstance(response, str) and str(raw.get("label")) in response)).encode()


def hangs(request: Request) -> tuple[int, None]:
    return 200, None


def one_after_another(handle: Handle, seconds: float) -> Handle:
    """Each request holds up the next."""
    lock = threading.Lock()

    def slow(request: Request) -> tuple[int, bytes | None]:
        with lock:
            time.sleep(seconds)
            return handle(request)

    return slow
