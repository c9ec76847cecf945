"""HTTP for the probe: every request ends by a deadline, whatever the server does, and no answer is an exception."""

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import requests
from urllib3.exceptions import HTTPError as BrokenRead

from rewards.asking.forwarding import SHOWN, own_words
from rewards.client import is_loopback

CHUNK_BYTES = 65536
MAX_REPLY_BYTES = 16 * 2**20
GRACE_S = 0.5  # for the thread's own timeout to speak first


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request. `body` is sent as it is, also where it is no JSON."""

    method: str
    url: str
    body: bytes | None = None
    content_type: str = "application/json"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back. `status` is None where no complete answer came; `problem` says why, in words."""

    status: int | None
    body: bytes = b""
    seconds: float = 0.0
    """From the first byte sent to the last one received, connecting included."""
    problem: str = ""

    @property
    def said(self) -> str:
        """Status and the server's own words or the start of the body, or the problem, for a message."""
        text = own_words(self.body) or self.body[:SHOWN].decode(errors="replace")
        return self.problem or f"{self.status} {' '.join(text.split())}".strip()


class Asker:
    """Asks with a new connection each time, as simple clients do. `timeout_s` bounds each request as a whole."""

    def __init__(self, token: str | None, timeout_s: float) -> None:
        self.token, self.timeout_s = token, timeout_s

    def ask(self, ask: Ask) -> Answer:
        return self.ask_all([ask])[0]

    def post(self, url: str, body: bytes) -> Answer:
        return self.ask(Ask(method="POST", url=url, body=body))

    def ask_all(self, asks: Sequence[Ask]) -> list[Answer]:
        """All at once. The threads are daemons: one that a server holds on to does not keep this process."""
        boxes: list[queue.SimpleQueue[Answer]] = [queue.SimpleQueue() for _ in asks]
        for ask, box in zip(asks, boxes, strict=True):
            threading.Thread(target=lambda a=ask, b=box: b.put(self._answer(a)), daemon=True).start()  # type: ignore[misc]
        deadline = time.monotonic() + self.timeout_s + GRACE_S
        return [self._collect(box, deadline) for box in boxes]

    def _collect(self, box: "queue.SimpleQueue[Answer]", deadline: float) -> Answer:
        try:
            return box.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return self._late()

    def _late(self) -> Answer:
        return Answer(status=None, seconds=self.timeout_s, problem=f"no complete answer within {self.timeout_s:g} s")

    def _answer(self, ask: Ask) -> Answer:
        began = time.monotonic()
        headers = {"Content-Type": ask.content_type} if ask.body is not None else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            with requests.Session() as session:
                session.trust_env = not is_loopback(ask.url)  # a proxy for the internet breaks loopback
                with session.request(
                    ask.method,
                    ask.url,
                    data=ask.body,
                    headers=headers,
                    timeout=self.timeout_s,
                    stream=True,
                    allow_redirects=False,  # a redirected POST would become a GET without its samples
                ) as response:
                    body = self._read(response, began + self.timeout_s)
                    return Answer(status=response.status_code, body=body, seconds=time.monotonic() - began)
        except (requests.Timeout, TimeoutError):
            return self._late()
        except (requests.RequestException, BrokenRead, ValueError) as error:
            return Answer(status=None, seconds=time.monotonic() - began, problem=_reason(error))

    def _read(self, response: requests.Response, deadline: float) -> bytes:
        body = b""
        while chunk := response.raw.read1(CHUNK_BYTES, decode_content=True):
            body += chunk
            if len(body) > MAX_REPLY_BYTES:
                raise ValueError(f"the answer has more than {MAX_REPLY_BYTES} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError
        return body


def _reason(error: Exception) -> str:
    """The innermost cause: `Connection refused` says more than the chain of classes around it."""
    while (inner := error.__cause__ or error.__context__) is not None and isinstance(inner, Exception):
        error = inner
    return f"no answer: {error}" if str(error) else f"no answer: {type(error).__name__}"
