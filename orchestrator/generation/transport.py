"""HTTP to a generation server: a deadline on everything, few and short retries, errors that say who answered what."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

CONNECT_TIMEOUT_S = 5.0
RETRY_FOR_S = 5.0
RETRY_PAUSE_S = 0.2


class GenerationError(RuntimeError):
    """A generation server could not be reached, refused a request, or answered nonsense.

    `status` is the HTTP status, None when no answer came.
    """

    def __init__(self, method: str, url: str, status: int | None, message: str) -> None:
        super().__init__(f"{method} {url}: {'no answer' if status is None else status}: {message}")
        self.method, self.url, self.status, self.message = method, url, status, message


class Transport:
    """A session with one server. Not for use by several threads at once."""

    def __init__(self, base_url: str, timeout_s: float, token: str | None) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not an http(s) URL: {base_url!r}")
        self.base_url, self.timeout_s = base_url.rstrip("/"), timeout_s
        self._session = requests.Session()
        # A proxy from the environment must not stand between us and this machine.
        self._session.trust_env = not _is_loopback(parts.hostname)
        self._session.mount(self.base_url, HTTPAdapter(max_retries=0))
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, *, params: Mapping[str, str] | None = None, timeout_s: float | None = None) -> Any:
        """JSON of a 200 answer, None for an empty body. Raises GenerationError."""
        return self._send("GET", path, params=params, timeout_s=timeout_s, repeatable=True)

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, str] | None = None,
        repeatable: bool = False,
        reads: bool = True,
    ) -> Any:
        """As `get`. `repeatable` says that sending the request twice does no harm; without `reads` the answer is None,
        whatever it says beside its 200."""
        return self._send("POST", path, json=body, params=params, repeatable=repeatable, reads=reads)

    def close(self) -> None:
        self._session.close()

    def _send(
        self,
        method: str,
        path: str,
        *,
        repeatable: bool,
        timeout_s: float | None = None,
        reads: bool = True,
        **content: Any,
    ) -> Any:
        url = self.base_url + path
        timeout = (CONNECT_TIMEOUT_S, timeout_s or self.timeout_s)
        give_up = time.monotonic() + RETRY_FOR_S
        while True:
            try:
                response = self._session.request(method, url, timeout=timeout, allow_redirects=False, **content)
                return _json_of(method, url, response, reads)
            except requests.ConnectionError as error:
                may_retry = repeatable or _never_sent(error)
                if not may_retry or time.monotonic() + RETRY_PAUSE_S >= give_up:
                    raise GenerationError(method, url, None, _reason(error)) from error
                time.sleep(RETRY_PAUSE_S)
            except requests.Timeout as error:
                raise GenerationError(method, url, None, f"nothing within {timeout[1]:g} s") from error
            except requests.RequestException as error:
                raise GenerationError(method, url, None, _reason(error)) from error


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _never_sent(error: requests.ConnectionError) -> bool:
    """Whether the connection failed before any byte of the request left."""
    return "NewConnectionError" in repr(error) or isinstance(error, requests.ConnectTimeout)


def _reason(error: Exception) -> str:
    text = str(error)
    for known in ("Connection refused", "Name or service not known", "Connection reset by peer"):
        if known in text:
            return known.lower()
    return text


def _json_of(method: str, url: str, response: requests.Response, reads: bool) -> Any:
    if response.status_code != 200:
        raise GenerationError(method, url, response.status_code, _server_message(response))
    if not response.content or not reads:
        return None
    try:
        return response.json()
    except ValueError as error:
        raise GenerationError(method, url, 200, f"the answer is not JSON: {response.text[:200]!r}") from error


def _server_message(response: requests.Response) -> str:
    """The server's own sentence: vLLM writes {"error": {"message"}}, some of its routes {"error": "..."}."""
    try:
        body = response.json()
        error = body.get("error", body.get("detail"))
        return str(error["message"] if isinstance(error, dict) else error or body)
    except (ValueError, AttributeError, KeyError):
        return response.text[:500] or str(response.reason)
