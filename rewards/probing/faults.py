"""Malformed requests: what a server answers, and what that costs whoever trains with it.

Safe is a 4xx: the client's fault, said at once. A 5xx says "my fault, try again", and is: by every client. A 200 with a
number is the worst: the number is trained on.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.asking.refusal import decode_reply
from rewards.checking.proofs import Level, Proof
from rewards.probing.http import Answer, Ask, Asker
from rewards.probing.route import HTTP_OK, Pair, Route

MOST_HANGS = 2  # each of them takes the whole time limit

Body = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One way to ask wrongly. `spoil` makes the bytes from a valid body whose texts are in `texts`."""

    name: str
    spoil: Callable[[Body, Sequence[str]], bytes]
    paid: str
    """What it means when it gets a score all the same; '' where a score, or an empty list, is right."""
    method: str = "POST"
    content_type: str = "application/json"


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()  # NaN as Python's clients write it


def _each(body: Body, texts: Sequence[str], change: Callable[[Any], Any]) -> bytes:
    return _json({name: change(value) if name in texts else value for name, value in body.items()})


def _cut(body: Body, texts: Sequence[str]) -> bytes:
    return _json(body)[:-2]


def _without_last(body: Body, texts: Sequence[str]) -> bytes:
    return _json({name: value for name, value in body.items() if name != texts[-1]})


def _last(body: Body, texts: Sequence[str], value: Any) -> bytes:
    return _json({**body, texts[-1]: value})


ANY: tuple[Fault, ...] = (
    Fault(name="malformed JSON", spoil=_cut, paid="half a request was scored"),
    Fault(name="a JSON list as body", spoil=lambda b, t: b"[]", paid="a request without samples was scored"),
    Fault(name="a missing field", spoil=_without_last, paid="a sample without a completion was scored"),
    Fault(name="content type text/plain", spoil=lambda b, t: _json(b), paid="", content_type="text/plain"),
    Fault(name="GET", spoil=lambda b, t: b"", paid="a request without samples was scored", method="GET"),
)
BATCHED: tuple[Fault, ...] = (
    Fault(
        name="texts instead of lists",
        spoil=lambda b, t: _each(b, t, lambda _: "ab"),
        paid="every character was scored as a sample",
    ),
    Fault(
        name="lists of different lengths",
        spoil=lambda b, t: _last(b, t, b[t[-1]][:-1]),
        paid="some sample got the score of another, or none",
    ),
    Fault(name="an empty batch", spoil=lambda b, t: _emptied(b), paid=""),
    Fault(name="null in a list", spoil=lambda b, t: _last(b, t, [None, *b[t[-1]][1:]]), paid="null was scored"),
    Fault(
        name="NaN in a list",
        spoil=lambda b, t: _last(b, t, [float("nan"), *b[t[-1]][1:]]),
        paid="NaN, which is no JSON, was scored as a completion",
    ),
)
SINGLE: tuple[Fault, ...] = (
    Fault(name="a number as completion", spoil=lambda b, t: _last(b, t, 5), paid="a number was scored as a completion"),
    Fault(name="null as completion", spoil=lambda b, t: _last(b, t, None), paid="null was scored"),
    Fault(
        name="NaN as completion",
        spoil=lambda b, t: _last(b, t, float("nan")),
        paid="NaN, which is no JSON, was scored as a completion",
    ),
)
TEXTS = {
    "native": ("prompts", "completions"),
    "align_anything": ("prompts", "responses"),
    "openrlhf": ("prompts", "query"),
    "vime": ("prompt", "response"),
}
"""Fields that hold the texts, the completion's last."""


def _emptied(body: Body) -> bytes:
    columns: dict[str, list[Any]] = {name: [] for name in body.get("columns", {})}
    emptied = {name: [] if isinstance(value, list) else value for name, value in body.items()}
    return _json({**emptied, "columns": columns} if "columns" in body else emptied)


def faults_of(route: Route) -> tuple[Fault, ...]:
    return (*ANY, *(SINGLE if route.dialect.per_sample else BATCHED))


def fault_proofs(asker: Asker, route: Route, pair: Pair) -> Iterator[Proof]:
    """One line for each answer that is not safe, and one for all that are."""
    texts = TEXTS[route.dialect.name]
    batch = route.batch(pair, [pair.rights[0]] if route.dialect.per_sample else [pair.rights[0], pair.wrongs[0]])
    body = json.loads(route.bodies(batch)[0])
    safe: list[str] = []
    hangs = 0
    for fault in faults_of(route):
        sent = None if fault.method == "GET" else fault.spoil(body, texts)
        answer = asker.ask(Ask(method=fault.method, url=route.url, body=sent, content_type=fault.content_type))
        level, message = _judged(route, fault, answer)
        if level == "ok":
            safe.append(f"{fault.name} {answer.status}")
        else:
            yield Proof(name="malformed", level=level, about=route.title, message=message, value=answer.said)
        hangs += answer.status is None
        if hangs == MOST_HANGS:
            message = f"{hangs} malformed requests got no answer; the others were not sent"
            yield Proof(name="malformed", level="skipped", about=route.title, message=message)
            break
    if safe:
        yield Proof(name="malformed", level="ok", about=route.title, message="answered safely: " + ", ".join(safe))


def _judged(route: Route, fault: Fault, answer: Answer) -> tuple[Level, str]:
    if answer.status is None:
        return "error", f"{fault.name} gets no answer: a client waits for its whole time limit, then asks again"
    if answer.status >= 500:
        return "warning", f"{fault.name} is answered with {answer.status}: every client retries it, in vain"
    if answer.status == HTTP_OK and fault.paid and _holds_a_score(answer.body):
        return "warning", f"{fault.name} is answered with 200 and a score: {fault.paid}, and would be trained on"
    return "ok", ""


def _holds_a_score(body: bytes) -> bool:
    """Whether any number stands where a client would look for rewards."""
    try:
        raw = decode_reply(body)
    except ValueError:
        return False
    if isinstance(raw, dict):
        found = [raw.get(key) for key in ("rewards", "score", "reward") if key in raw]
        raw = found[0] if found else None
    items = raw if isinstance(raw, list) else [raw]
    return any(isinstance(item, (int, float)) and not isinstance(item, bool) for item in items)
