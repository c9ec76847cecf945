"""A real HTTP server that answers as a test tells it, right or wrong."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes, dict[str, str]]


@dataclass
class Scripted:
    """A server that gives its answers in turn, the last one for ever, and keeps what it was asked."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any], str | None]] = field(default_factory=list)
    drip_s: float = 0.0
    reply: Callable[[dict[str, Any]], Answer] | None = None
    """Answers by what was asked, instead of the script."""
    lock: Any = field(default_factory=threading.Lock)

    def will(self, status: int, body: Any, **headers: str) -> "Scripted":
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers.append((status, raw, {name.replace("_", "-"): value for name, value in headers.items()}))
        return self

    def next(self) -> Answer:
        with self.lock:
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def scripted_server() -> Iterator[Scripted]:
    state = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer((404, b"<html>", {}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.asked.append((self.path, body, self.headers.get("Authorization")))
            self._answer(state.reply(body) if state.reply else state.next())

        def _answer(self, answer: Answer) -> None:
            status, body, headers = answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            for at in range(0, len(body), 1 if state.drip_s else len(body)):
                self.wfile.write(body[at : at + 1] if state.drip_s else body)
                time.sleep(state.drip_s)

        def log_message(self, *args: object) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # with 5, the kernel makes many clients at once wait for a second

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()
