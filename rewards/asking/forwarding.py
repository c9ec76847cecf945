"""One POST to a reward server that may be another system's: tried again only where that can help, within a deadline.

What can help: no connection, one that broke, 503 (after the server's Retry-After), and a 502 or 504 of a gateway. A
4xx, a 500, and a 504 with a JSON error come from the reward server itself and would only come again.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3

from rewards.asking.score_reply import RewardError
from rewards.asking.transport import FIRST_PAUSE_S, HTTP_OK, HTTP_UNAVAILABLE, Transport, retry_after_s

LONGEST_PAUSE_S = 5.0  # unless the server asks for a longer one
GATEWAY = (502, 504)
SHOWN = 300  # characters of a reply in an error
CHUNK_BYTES = 65536
MAX_REPLY_BYTES = 64 * 2**20

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
        status, headers, raw = self._post(body, deadline)
        if status != HTTP_OK:
            raise self._refusal(status, headers, raw)
        try:
            return read(json.loads(raw))
        except (ValueError, RecursionError) as error:
            raise RewardError(f"{self.url} answered 200 with something that is not JSON: {_shown(raw)}") from error
        except RewardError as error:
            raise RewardError(f"{self.url}: {error}; it answered {_shown(raw)}", HTTP_OK) from error

    def _post(self, body: bytes, deadline: float) -> tuple[int, Mapping[str, str], bytes]:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise RewardError(f"POST {self.url}: no time left to ask")
        try:
            with self._session().post(
                self.url,
                data=body,
                headers=self._headers,
                timeout=left_s,
                stream=True,
                allow_redirects=False,  # a redirected POST would become a GET without its samples
            ) as response:
                return response.status_code, response.headers, self._read(response, deadline)
        except requests.ReadTimeout as error:  # it may still be scoring: to ask again would double its load
            raise RewardError(f"POST {self.url}: no answer within {left_s:.3g} s") from error
        except (requests.ConnectionError, urllib3.exceptions.HTTPError) as error:
            raise _RetryableError(f"POST {self.url}: no connection: {error}") from error
        except requests.RequestException as error:
            raise RewardError(f"POST {self.url}: {error}") from error

    def _read(self, response: requests.Response, deadline: float) -> bytes:
        """The body. A server that sends a byte now and then meets the deadline too."""
        chunks, size = [], 0
        while chunk := response.raw.read1(CHUNK_BYTES, decode_content=True):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                raise RewardError(f"{self.url} answered with more than {MAX_REPLY_BYTES} bytes")
            if time.monotonic() > deadline:
                raise RewardError(f"POST {self.url}: its answer was not complete in time ({size} bytes came)")
        return b"".join(chunks)

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = Transport(self.url, self._token, 0.0).session
        return session

    def _refusal(self, status: int, headers: Mapping[str, str], raw: bytes) -> RewardError:
        said = own_words(raw)
        message = f"{self.url} answered {status}: {said or _shown(raw)}"
        if status == HTTP_UNAVAILABLE:
            return _RetryableError(message, status, retry_after_s(headers.get("Retry-After")))
        if status in GATEWAY and said is None:
            return _RetryableError(message, status)
        return RewardError(message, status)


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


def own_words(raw: bytes) -> str | None:
    """The message of a JSON error body, whichever system's; None where there is none: a gateway's page."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, Mapping):
        return None
    error = body.get("error", body.get("detail"))
    if isinstance(error, Mapping) and isinstance(error.get("message"), str):
        return str(error["message"]) + (f"; value: {error['value']}" if error.get("value") else "")
    return None if error is None else str(error)[:SHOWN]


def _shown(raw: bytes) -> str:
    text = raw[: 4 * SHOWN].decode(errors="replace")
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
