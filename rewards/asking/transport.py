"""HTTP to a reward server of ours: what can recover is tried again within a deadline; refusals are quoted."""

import ipaddress
import time
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from rewards.asking.score_reply import RewardError

ATTEMPTS = 5
"""Where the server does not say when to come again. Where it does (503 with Retry-After), only the deadline ends it."""
FIRST_PAUSE_S = 0.2  # doubles with every attempt
HTTP_OK = 200
HTTP_UNAVAILABLE = 503


class Transport:
    """One session to one address. Not for several threads at once."""

    def __init__(self, base_url: str, token: str | None, timeout_s: float) -> None:
        """`timeout_s` bounds each call, retries included."""
        self.base_url, self.timeout_s = base_url.rstrip("/"), timeout_s
        self.session = requests.Session()
        # A proxy for the internet breaks loopback; many machines set one for every process.
        self.session.trust_env = not is_loopback(self.base_url)
        self.session.auth = _Bearer(token) if token else None

    def call(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Tries again where nothing was scored (no connection, 503); a 4xx or 500 would only come again.

        Raises RewardError.
        """
        deadline, unasked = time.monotonic() + self.timeout_s, 0
        while True:
            asked_s = None
            try:
                response = self._send(method, path, body, deadline - time.monotonic())
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
                problem = RewardError(f"{method} {self.base_url}{path}: no connection: {error}")
            else:
                if response.status_code == HTTP_OK:
                    return _json_object(response)
                problem, asked_s = _refusal(response), retry_after_s(response.headers.get("Retry-After"))
                if response.status_code != HTTP_UNAVAILABLE:
                    raise problem
            wait_s = FIRST_PAUSE_S * 2**unasked if asked_s is None else asked_s
            unasked += asked_s is None
            if unasked >= ATTEMPTS or time.monotonic() + wait_s >= deadline:
                raise problem
            time.sleep(wait_s)

    def _send(self, method: str, path: str, body: bytes | None, within_s: float) -> requests.Response:
        headers = {"Content-Type": "application/json"} if body is not None else None
        url = self.base_url + path
        try:
            # A redirected POST would become a GET without its samples.
            return self.session.request(
                method, url, data=body, headers=headers, timeout=within_s, allow_redirects=False
            )
        except requests.ReadTimeout as error:  # it may still be scoring: sending the batch again would double the load
            raise RewardError(f"{method} {url}: no answer within {self.timeout_s:g} s") from error
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            raise
        except requests.RequestException as error:
            raise RewardError(f"{method} {url}: {error}") from error


class _Bearer(requests.auth.AuthBase):
    """Unlike a header, this is not replaced by an entry in ~/.netrc."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def retry_after_s(header: str | None) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or a date (RFC 9110, section 10.2.3); None: neither."""
    if header is None:
        return None
    try:
        # Not sooner than we would by ourselves: "0" in a loop would be a flood.
        return max(FIRST_PAUSE_S, urllib3.Retry().parse_retry_after(header))
    except urllib3.exceptions.InvalidHeader:
        return None


def _json_object(response: requests.Response) -> dict[str, Any]:
    try:
        raw = response.json()
    except requests.JSONDecodeError as error:
        raise RewardError(f"{response.url} answered 200 with something that is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise RewardError(f"{response.url} answered 200 with a {type(raw).__name__}, not an object")
    return raw


def _refusal(response: requests.Response) -> RewardError:
    """The server's error body in words: function, sample and value are in it."""
    try:
        body = response.json()
        error, errors = body["error"], body.get("errors", ())
        words = error["message"] + (f"; value: {error['value']}" if error.get("value") else "")
    except (requests.JSONDecodeError, KeyError, TypeError):
        words, errors = response.text[:500], ()
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return RewardError(f"{response.url} answered {response.status_code}: {words}{more}", response.status_code, errors)
