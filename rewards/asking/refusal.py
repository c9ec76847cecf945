"""What a server says when it gives no scores: the words of its error body, whichever system's."""

import json
from collections.abc import Mapping
from typing import Any

import urllib3

FIRST_PAUSE_S = 0.2  # doubles with every attempt
LONGEST_PAUSE_S = 366 * 86400.0  # what a Retry-After may ask for: longer than anybody waits, and a number
SHOWN = 300  # characters of a reply in an error


def own_words(raw: bytes) -> str | None:
    """The message of a JSON error body; None where there is none: a gateway's page."""
    body = _object(raw)
    error = body.get("error", body.get("detail"))
    if isinstance(error, Mapping) and isinstance(error.get("message"), str):
        return str(error["message"]) + (f"; value: {error['value']}" if error.get("value") else "")
    return None if error is None else str(error)[:SHOWN]


def listed_errors(raw: bytes) -> list[dict[str, Any]]:
    """Every error that a server of ours lists in the body of a refusal."""
    errors = _object(raw).get("errors")
    return [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []


def shown(raw: bytes) -> str:
    """The start of a body, for an error."""
    text = raw[: 4 * SHOWN].decode(errors="replace")
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def retry_after_s(header: str | None) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or a date (RFC 9110, section 10.2.3); None: neither."""
    if header is None:
        return None
    try:
        asked_s = urllib3.Retry().parse_retry_after(header)
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):  # the year 99999; thousands of digits
        return None
    # Not sooner than we would by ourselves: "0" in a loop would be a flood.
    return float(max(FIRST_PAUSE_S, min(asked_s, LONGEST_PAUSE_S)))


def decode_reply(raw: bytes) -> Any:
    """JSON, with the NaN and Infinity that many servers write: the parser then names the sample. Raises ValueError."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        body = decode_reply(raw)
    except ValueError:
        return {}
    return body if isinstance(body, Mapping) else {}
