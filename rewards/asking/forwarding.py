"""One POST to a reward server that may be another system's: tried again only where that can help, within a deadline.

What can help: no connection, one that broke, 503 (after the server's Retry-After), and a 502 or 504 of a gateway. A
4xx, a 500, and a 504 with a JSON error come from the reward server itself and would only come again.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rewards.asking.exchange import Exchange, NoAnswerError, NoConnectionError, Reply
from rewards.asking.refusal import FIRST_PAUSE_S, decode_reply, own_words, retry_after_s, shown
from rewards.asking.score_reply import RewardError
from rewards.asking.transport import HTTP_OK, HTTP_UNAVAILABLE

LONGEST_PAUSE_S = 5.0  # unless the server asks for a longer one
GATEWAY = (502, 504)

T = TypeVar("T")


class _RetryableError(RewardError):
    """An attempt failed in a way that the next one may not. `after_s`: what the server asked to wait for, seconds."""

    def __init__(self, message: str, status: int | None = None, after_s: float | None = None) -> None:
        super().__init__(message, status)
        self.after_s = after_s


class Forwarder:
    """Asks one address. May be used by several threads: each has connections of its own."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url, self._local = url, threading.local()
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        self._token = token

    def ask(self, body: bytes, read: Callable[[Any], T], deadline: float, retries: int) -> T:
        """`read` of the decoded reply; what it raises names this server and is not tried again.

        `deadline` is on the clock of time.monotonic(). Raises RewardError.
        """
        pause, attempt = FIRST_PAUSE_S, 0
        while True:
            try:
                return self._attempt(body, read, deadline)
            except _RetryableError as problem:
                attempt += 1
                wait_s, left_s = max(pause, problem.after_s or 0.0), deadline - time.monotonic()
                tried = f" (tried {attempt} time{'s' * (attempt > 1)})"
                if attempt > retries:
                    raise RewardError(f"{problem}{tried}", problem.status) from problem
                if wait_s >= left_s:
                    why = f"; the next try would be in {wait_s:.3g} s, but only {max(left_s, 0.0):.3g} s are left"
                    raise RewardError(f"{problem}{tried}{why}", problem.status) from problem
            time.sleep(wait_s)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _attempt(self, body: bytes, read: Callable[[Any], T], deadline: float) -> T:
        reply = self._post(body, deadline)
        if reply.status != HTTP_OK:
            raise self._refusal(reply)
        try:
            return read(decode_reply(reply.body))
        except ValueError as error:
            words = f"{self.url} answered 200 with something that is not JSON: {shown(reply.body)}"
            raise RewardError(words) from error
        except RewardError as error:
            raise RewardError(f"{self.url}: {error}; it answered {shown(reply.body)}", HTTP_OK) from error

    def _post(self, body: bytes, deadline: float) -> Reply:
        exchange: Exchange | None = getattr(self._local, "exchange", None)
        if exchange is None:
            exchange = self._local.exchange = Exchange(self.url, self._token)
        try:
            return exchange.ask("POST", self.url, body, deadline - time.monotonic(), self._headers)
        except NoConnectionError as error:
            raise _RetryableError(f"POST {self.url}: {error}") from error
        except NoAnswerError as error:  # late: it may still be scoring, and to ask again would double its load
            raise RewardError(f"POST {self.url}: {error}") from error

    def _refusal(self, reply: Reply) -> RewardError:
        said = own_words(reply.body)
        message = f"{self.url} answered {reply.status}: {said or shown(reply.body)}"
        if reply.status == HTTP_UNAVAILABLE:
            return _RetryableError(message, reply.status, retry_after_s(reply.headers.get("Retry-After")))
        if reply.status in GATEWAY and said is None:
            return _RetryableError(message, reply.status)
        return RewardError(message, reply.status)


def address(url: str, path: str) -> str:
    """Where to POST: `url` itself where it names a route, else `path` on that server. Raises ValueError."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a broken IPv6 address
        usable = False
    if not usable:
        raise ValueError(f"url must be an address such as http://127.0.0.1:8008, not {url!r}")
    return url if parts.path.strip("/") else url.rstrip("/") + path
