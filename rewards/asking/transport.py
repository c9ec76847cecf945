"""HTTP to a reward server of ours: what can recover is tried again within a deadline; refusals are quoted."""

import time
from typing import Any

from rewards.asking.exchange import Exchange, LateError, NoAnswerError, NoConnectionError, Reply
from rewards.asking.refusal import FIRST_PAUSE_S, decode_reply, listed_errors, own_words, retry_after_s, shown
from rewards.asking.score_reply import RewardError

ATTEMPTS = 5
"""Where the server does not say when to come again. Where it does (503 with Retry-After), only the deadline ends it."""
HTTP_OK = 200
HTTP_UNAVAILABLE = 503
JSON_BODY = {"Content-Type": "application/json"}


class Transport:
    """Asks one address. Not for several threads at once."""

    def __init__(self, base_url: str, token: str | None, timeout_s: float) -> None:
        """`timeout_s` bounds each call, retries included."""
        self.base_url, self.timeout_s = base_url.rstrip("/"), timeout_s
        self.exchange = Exchange(self.base_url, token)

    def call(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Tries again where nothing was scored (no connection, 503); a 4xx or 500 would only come again.

        Raises RewardError.
        """
        url, deadline, unasked = self.base_url + path, time.monotonic() + self.timeout_s, 0
        while True:
            asked_s = None
            try:
                reply = self._ask(method, url, body, deadline)
            except NoConnectionError as error:
                problem = RewardError(f"{method} {url}: {error}")
            else:
                if reply.status == HTTP_OK:
                    return _json_object(url, reply)
                problem, asked_s = _refusal(url, reply), retry_after_s(reply.headers.get("Retry-After"))
                if reply.status != HTTP_UNAVAILABLE:
                    raise problem
            wait_s = FIRST_PAUSE_S * 2**unasked if asked_s is None else asked_s
            unasked += asked_s is None
            if unasked >= ATTEMPTS or time.monotonic() + wait_s >= deadline:
                raise problem
            time.sleep(wait_s)

    def _ask(self, method: str, url: str, body: bytes | None, deadline: float) -> Reply:
        try:
            headers = JSON_BODY if body is not None else None
            return self.exchange.ask(method, url, body, deadline - time.monotonic(), headers)
        except LateError as error:  # it may still be scoring: sending the batch again would double the load
            raise RewardError(f"{method} {url}: no complete answer within {self.timeout_s:g} s") from error
        except NoConnectionError:
            raise
        except NoAnswerError as error:
            raise RewardError(f"{method} {url}: {error}") from error


def _json_object(url: str, reply: Reply) -> dict[str, Any]:
    try:
        raw = decode_reply(reply.body)
    except ValueError as error:
        raise RewardError(f"{url} answered 200 with something that is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise RewardError(f"{url} answered 200 with a {type(raw).__name__}, not an object")
    return raw


def _refusal(url: str, reply: Reply) -> RewardError:
    """The server's error body in words: function, sample and value are in it."""
    words, errors = own_words(reply.body) or shown(reply.body), listed_errors(reply.body)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return RewardError(f"{url} answered {reply.status}: {words}{more}", reply.status, errors)
