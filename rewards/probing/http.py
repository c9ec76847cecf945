"""HTTP for the probe: every request ends by a deadline, whatever the server does, and no answer is an exception."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rewards.asking.exchange import Exchange, LateError, NoAnswerError
from rewards.asking.refusal import SHOWN, own_words
from rewards.printing import printable


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
        return printable(self.problem or f"{self.status} {' '.join(text.split())}".strip())


class Asker:
    """Asks with a new connection each time, as simple clients do. `timeout_s` bounds each request as a whole."""

    def __init__(self, token: str | None, timeout_s: float) -> None:
        self.token, self.timeout_s = token, timeout_s

    def ask(self, ask: Ask) -> Answer:
        exchange, began = Exchange(ask.url, self.token), time.monotonic()
        headers = {"Content-Type": ask.content_type} if ask.body is not None else {}
        try:
            reply = exchange.ask(ask.method, ask.url, ask.body, self.timeout_s, headers)
        except LateError:
            problem = f"no complete answer within {self.timeout_s:g} s"
            return Answer(status=None, seconds=self.timeout_s, problem=problem)
        except NoAnswerError as error:
            return Answer(status=None, seconds=time.monotonic() - began, problem=str(error))
        finally:
            exchange.close()
        return Answer(status=reply.status, body=reply.body, seconds=time.monotonic() - began)

    def post(self, url: str, body: bytes) -> Answer:
        return self.ask(Ask(method="POST", url=url, body=body))

    def ask_all(self, asks: Sequence[Ask]) -> list[Answer]:
        """All at once."""
        with ThreadPoolExecutor(len(asks)) as threads:
            return list(threads.map(self.ask, asks))
