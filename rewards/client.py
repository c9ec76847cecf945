"""Client of the reward server: checks what comes back, and shows the server's own words when it refuses."""

import ipaddress
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests

from rewards.batch import Text

ATTEMPTS = 5
FIRST_PAUSE_S = 0.2  # doubles with every attempt
HTTP_OK = 200
HTTP_UNAVAILABLE = 503


class RewardError(Exception):
    """No usable scores. `status` is None when there was no HTTP answer; `errors` are the server's, if it sent any."""

    def __init__(self, message: str, status: int | None = None, errors: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.status, self.errors = status, tuple(errors)


@dataclass(frozen=True)
class ScoreReply:
    """Scores of a batch, in its order. None: not scored (aborted, masked, or not this function's)."""

    components: dict[str, list[float | None]]
    rewards: list[float | None]
    errors: list[dict[str, Any]]
    logs: dict[str, list[Any]]
    aborted: list[int]
    seconds: float


class RewardClient:
    """One session to one server. Not for several threads at once."""

    def __init__(self, base_url: str, token: str | None = None, timeout_s: float = 60.0) -> None:
        """`timeout_s` bounds each call, retries included."""
        self.base_url, self.timeout_s = base_url.rstrip("/"), timeout_s
        self._session = requests.Session()
        # A proxy for the internet breaks loopback; many machines set one for every process.
        self._session.trust_env = not is_loopback(self.base_url)
        self._session.auth = _Bearer(token) if token else None

    def health(self) -> bool:
        """Whether the server is ready to score. Never raises; waits for nothing."""
        try:
            status = self._session.get(self.base_url + "/health", timeout=self.timeout_s).status_code
        except requests.RequestException:
            return False
        return status == HTTP_OK

    def info(self) -> dict[str, Any]:
        """What the server says about itself and its functions. Raises RewardError."""
        return self._call("GET", "/info", None)

    def score(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        columns: Mapping[str, Sequence[Any]],
        group_ids: Sequence[str | int] | None = None,
        statuses: Sequence[str] | None = None,
    ) -> ScoreReply:
        """Score one batch. Raises RewardError."""
        request = {
            "prompts": list(prompts),
            "completions": list(completions),
            "columns": {name: list(column) for name, column in columns.items()},
            "group_ids": None if group_ids is None else list(group_ids),
            "statuses": None if statuses is None else list(statuses),
        }
        try:
            body = json.dumps(request, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise RewardError(f"this batch cannot be sent as JSON: {error}") from error
        return parse_reply(self._call("POST", "/v1/score", body), len(prompts))

    def close(self) -> None:
        self._session.close()

    def _call(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        """Tries again where nothing was scored (no connection, 503); a 4xx or 500 would only come again."""
        deadline, pause, problem = time.monotonic() + self.timeout_s, FIRST_PAUSE_S, RewardError("no attempt was made")
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(pause)
                pause *= 2
            try:
                response = self._send(method, path, body, deadline - time.monotonic())
            except requests.ConnectionError as error:
                problem = RewardError(f"{method} {self.base_url}{path}: no connection: {error}")
            else:
                if response.status_code == HTTP_OK:
                    return _json_object(response)
                problem = _refusal(response)
                if response.status_code != HTTP_UNAVAILABLE:
                    raise problem
            if time.monotonic() + pause >= deadline:
                break
        raise problem

    def _send(self, method: str, path: str, body: bytes | None, within_s: float) -> requests.Response:
        headers = {"Content-Type": "application/json"} if body is not None else None
        url = self.base_url + path
        try:
            return self._session.request(method, url, data=body, headers=headers, timeout=within_s)
        except requests.ReadTimeout as error:  # it may still be scoring: sending the batch again would double the load
            raise RewardError(f"{method} {url}: no answer within {self.timeout_s:g} s") from error
        except requests.ConnectionError:
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


def parse_reply(raw: Mapping[str, Any], count: int) -> ScoreReply:
    """Hold a reply against the batch that was sent. Raises RewardError: a short or infinite reply is no reply."""
    for key, kind in (("components", dict), ("rewards", list), ("errors", list), ("logs", dict), ("aborted", list)):
        if not isinstance(raw.get(key), kind):
            raise RewardError(f"the reply has no valid {key!r}: is this a reward server of ours? {str(raw)[:200]}")
    for name, column in raw["components"].items():
        _check_numbers(f"components[{name!r}]", column, count)
    _check_numbers("rewards", raw["rewards"], count)
    return ScoreReply(
        components=raw["components"],
        rewards=raw["rewards"],
        errors=raw["errors"],
        logs=raw["logs"],
        aborted=raw["aborted"],
        seconds=float(raw.get("seconds", 0.0)),
    )


def _check_numbers(name: str, column: Any, count: int) -> None:
    if not isinstance(column, list) or len(column) != count:
        got = len(column) if isinstance(column, list) else type(column).__name__
        raise RewardError(f"the reply's {name} has {got} entries for {count} samples")
    for index, value in enumerate(column):
        if value is not None and (not isinstance(value, float) or not math.isfinite(value)):
            raise RewardError(f"the reply's {name} holds {value!r} for sample {index} instead of a finite number")


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
