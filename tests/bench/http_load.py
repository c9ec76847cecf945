"""The load: keep-alive connections that send prepared bytes and read nothing but heads and lengths.

`python -m tests.bench.http_load` reads a list of Loads from stdin and writes what each measured to stdout, as JSON.
"""

import asyncio
import json
import random
import statistics
import string
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

TEXT = 300  # characters of a prompt, a completion and a gold answer each: 0.9 KiB a pair
BODIES = 4  # different ones per load, sent in turn
ALPHABET = string.ascii_letters + string.digits + '    .,\n"'
HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length: "


@dataclass(frozen=True)
class Load:
    """Requests of `batch` pairs to one server, from `clients` at once, each sending its next after an answer."""

    server: str
    port: int
    path: str
    clients: int
    batch: int
    seconds: float


@dataclass
class Window:
    """Latencies of the answers that came before the end."""

    end: float
    latencies: list[float]


class Client(asyncio.Protocol):
    """One connection. `finished` is done after the last answer, or has the error."""

    def __init__(self, requests: list[bytes], expected: list[list[float]], finished: "asyncio.Future[None]") -> None:
        self.requests, self.expected, self.finished = requests, expected, finished
        self.window: Window | None = None
        self._received = b""
        self._next = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the server closed the connection")

    def begin(self, window: Window | None, finished: "asyncio.Future[None]") -> None:
        """Without a window: one request, whose answer is looked at."""
        self.window, self.finished = window, finished
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(HEAD_END)
        if head < 0:
            return
        at = self._received.find(LENGTH) + len(LENGTH)
        size = head + len(HEAD_END) + int(self._received[at : self._received.find(b"\r", at)])
        if len(self._received) < size:
            return
        answer, self._received = self._received[:size], b""
        if not answer.startswith(b"HTTP/1.1 200"):
            self._fail(answer[:500].decode())
        elif self.window is None:
            rewards = json.loads(answer[head:])["rewards"]
            right = self.expected[self._next - 1]
            self._end() if rewards == right else self._fail(f"wrong rewards: {rewards}, expected {right}")
        elif (now := time.perf_counter()) < self.window.end:
            self.window.latencies.append(now - self._sent)
            self._send()
        else:
            self._end()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self.transport.write(self.requests[self._next])
        self._next = (self._next + 1) % len(self.requests)

    def _end(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)

    def _fail(self, why: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(RuntimeError(why))


def request(load: Load, seed: int) -> tuple[bytes, list[float]]:
    """A request of the server's dialect, and the rewards that must come back. Half of the answers are wrong."""
    rng = random.Random(seed)

    def text() -> str:
        return "".join(rng.choices(ALPHABET, k=TEXT - 2)) + ".."

    prompts, completions = [text() for _ in range(load.batch)], [text() for _ in range(load.batch)]
    golds = [text if i % 2 else text[:-1] + "!" for i, text in enumerate(completions)]
    if load.path == "/get_reward":
        queries = [prompt + completion for prompt, completion in zip(prompts, completions, strict=True)]
        body: dict[str, Any] = {"query": queries, "prompts": prompts, "labels": [gold[-1] for gold in golds]}
    else:
        body = {"prompts": prompts, "completions": completions, "columns": {"answer": golds}}
    data = json.dumps(body).encode()
    head = f"POST {load.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: "
    expected = [1.0 if load.path == "/echo" else float(i % 2) for i in range(load.batch)]
    return head.encode() + str(len(data)).encode() + HEAD_END + data, expected


async def measure(load: Load) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    requests, expected = zip(*(request(load, seed) for seed in range(BODIES)), strict=True)
    clients = []
    for _ in range(load.clients):
        _, client = await loop.create_connection(
            lambda: Client(list(requests), list(expected), loop.create_future()), "127.0.0.1", load.port
        )
        clients.append(client)
    await _all(clients, None)
    began = time.perf_counter()
    window = Window(began + load.seconds, [])
    await _all(clients, window)
    for client in clients:
        client.transport.close()
    centiles = statistics.quantiles(window.latencies, n=100)
    return {
        "pairs_per_s": len(window.latencies) * load.batch / load.seconds,
        **{f"p{p}_ms": 1000 * centiles[p - 1] for p in (50, 95, 99)},
    }


async def _all(clients: list[Client], window: Window | None) -> None:
    loop = asyncio.get_running_loop()
    finished = [loop.create_future() for _ in clients]
    for client, future in zip(clients, finished, strict=True):
        client.begin(window, future)
    async with asyncio.timeout(60):
        await asyncio.gather(*finished)


def main() -> None:
    if find_spec("uvloop"):  # where uvicorn finds it, so do we
        asyncio.set_event_loop_policy(import_module("uvloop").EventLoopPolicy())
    loads = [Load(**raw) for raw in json.load(sys.stdin)]
    json.dump([asyncio.run(measure(load)) for load in loads], sys.stdout)


if __name__ == "__main__":
    main()
