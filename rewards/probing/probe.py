"""`reward probe`: asks a running reward server in every dialect, and says what a trainer would suffer from it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from rewards.asking.dialects import DIALECTS, Dialect
from rewards.asking.exchange import is_loopback
from rewards.asking.forwarding import address
from rewards.asking.refusal import decode_reply
from rewards.asking.score_reply import RewardError, parse_functions
from rewards.checking.proofs import Level, Proof, has_errors
from rewards.probing.http import Answer, Ask, Asker
from rewards.probing.proofs import Examined, Examiner
from rewards.probing.route import GOLD, HTTP_OK, NEEDS_TOKEN, Pair, Reading, Route, State, state_of

OK, PROBLEMS, NOBODY = 0, 2, 3
RETRIES = {
    "align_anything": "its client asks 3 times, then the run ends",
    "vime": "its client asks 10 times over two and a half minutes or more, then the rollout ends",
}
NO_DATA = '"None"'  # what Align-Anything's server says without --dataset: {"error":"None"}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The first valid request to a route."""

    route: Route
    state: State
    reading: Reading
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    url: str
    proofs: tuple[Proof, ...]
    honoured: tuple[Examined, ...] = ()
    answered: bool = True

    @property
    def exit_code(self) -> int:
        """0: a dialect is honoured and right scores above wrong; 2: problems; 3: nobody answers."""
        if not self.answered:
            return NOBODY
        works = any(examined.told_apart for examined in self.honoured)
        return OK if works and not has_errors(self.proofs) else PROBLEMS


def probe(url: str, pair: Pair, asker: Asker, dialects: Sequence[str] = ()) -> ProbeReport:
    """Every wait ends within the asker's time limit. Raises ValueError for what is no address."""
    address(url, "/")
    root = root_of(url)
    health, info = asker.ask_all([Ask(method="GET", url=root + "/health"), Ask(method="GET", url=root + "/info")])
    wanted = [dialect for name, dialect in DIALECTS.items() if not dialects or name in dialects]
    routes = [route for dialect in wanted for route in routes_of(url, root, dialect, _columns(info))]
    tried = _try_all(asker, routes, pair)
    if all(answer.status is None for answer in (health, info, *(one.answer for one in tried))):
        nobody = f"nobody answers at {url}: {health.problem}"
        proof = Proof(name="server", level="error", message=nobody, fix="start the server, or correct host and port")
        return ProbeReport(url=url, proofs=(proof,), answered=False)
    honoured = [one for one in tried if one.state == "honoured"]
    examined = tuple(Examiner(asker, one.route, pair).examine() for one in honoured)
    proofs = [_health(health, root)]
    proofs += _others(tried, wanted)
    proofs += [proof for one in examined for proof in one.proofs]
    proofs += _token(asker, honoured, pair)
    return ProbeReport(url=url, proofs=tuple(proofs), honoured=examined)


def root_of(url: str) -> str:
    """The server's address without a route that a dialect knows, so that the others can be asked as well."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    for dialect in DIALECTS.values():
        path = path.removesuffix(dialect.path)
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")).rstrip("/")


def routes_of(url: str, root: str, dialect: Dialect, columns: Mapping[str, Any]) -> Iterator[Route]:
    """Where a dialect may be spoken: its usual route, and the address as given unless it is another dialect's."""
    columns = columns if dialect.name == "native" else {}
    yield Route(dialect=dialect, url=root + dialect.path, columns=columns)
    path = urlsplit(url).path.rstrip("/")
    known = any(path.endswith(other.path) for other in DIALECTS.values())
    if not known and (path or dialect.per_sample):  # remote_rm servers often answer at `/`
        yield Route(dialect=dialect, url=url, columns=columns)


def _columns(info: Answer) -> dict[str, Any]:
    """What a native server's functions need: its /info says it. {} for any other server."""
    if info.status != HTTP_OK:
        return {}
    try:
        functions = parse_functions(decode_reply(info.body))
    except (ValueError, RewardError):
        return {}
    chosen = {name: values[0] for function in functions for name, values in function.only.items() if values}
    needed = {name: GOLD for function in functions for name in function.required_columns}
    return {**needed, **chosen}


def _try_all(asker: Asker, routes: Sequence[Route], pair: Pair) -> list[Tried]:
    """The first right completion on every route, side by side: a server that hangs costs one time limit, not eight."""
    bodies = [route.bodies(route.batch(pair, [pair.rights[0]]))[0] for route in routes]
    asks = [Ask(method="POST", url=route.url, body=body) for route, body in zip(routes, bodies, strict=True)]
    tried = []
    for route, answer in zip(routes, asker.ask_all(asks), strict=True):
        reading = route.read(answer, 1)
        tried.append(Tried(route=route, state=state_of(reading, answer), reading=reading, answer=answer))
    return tried


def _others(tried: Sequence[Tried], wanted: Sequence[Dialect]) -> Iterator[Proof]:
    """Routes that are not honoured. Where another dialect is, a refusal is the server's good right."""
    spoken = {one.route.dialect.name for one in tried if one.state == "honoured"}
    for dialect in wanted:
        own = [one for one in tried if one.route.dialect is dialect]
        if dialect.name in spoken:
            continue
        telling = next((one for one in own if one.state in ("broken", "refused")), own[0])
        title, said = telling.route.title, telling.reading.problem
        if telling.state == "absent":
            words = f"not there: {said}" if telling.answer.status is not None else said
            hangs = telling.answer.status is None
            level: Level = "error" if hangs or (not spoken and len(wanted) == 1) else "note"
            yield Proof(name="dialect", level=level, about=title, message=words)
            continue
        bad = telling.state == "broken" or not spoken
        yield Proof(
            name="dialect",
            level="error" if bad else "note",
            about=title,
            message=_refusal(telling) if bad else f"not spoken: {said}",
            fix=_cure(telling),
        )
    if not spoken and all(one.state == "absent" for one in tried):
        message = "none of the dialects is spoken here: every client gets an error at its first rollout"
        yield Proof(name="dialect", level="error", message=message, fix="give the address with its route")


def _refusal(tried: Tried) -> str:
    name, said = tried.route.dialect.name, tried.reading.problem
    if tried.state == "broken":
        return f"the reply breaks the contract: {said}"
    retried = RETRIES.get(name)
    return f"a valid request is answered with {said}" + (f"; {retried}" if retried else "")


def _cure(tried: Tried) -> str:
    if tried.answer.status in NEEDS_TOKEN:
        return "it asks for a token: export it, and name the variable with --token-env"
    if NO_DATA in tried.answer.body.decode(errors="replace") and tried.answer.status == 500:
        return "the server has no data set to find gold answers in: start it with --dataset"
    if _names_a_column(tried.answer):
        return "its functions want columns that a probe does not have: --gold, --right and --wrong cannot give them"
    return ""


def _names_a_column(answer: Answer) -> bool:
    return answer.status == 422 and b"needs the column" in answer.body


def _health(answer: Answer, root: str) -> Proof:
    if answer.status == HTTP_OK:
        return Proof(name="health", level="ok", message=f"{root}/health answers 200")
    if answer.status == 503:
        return Proof(name="health", level="warning", message=f"{root}/health: not ready: {answer.said}")
    message = f"no health route ({answer.said}): nothing can wait for it, first contact is the first rollout"
    return Proof(name="health", level="warning", message=message)


def _token(asker: Asker, honoured: Sequence[Tried], pair: Pair) -> Iterator[Proof]:
    for one in honoured:
        title, route = one.route.title, one.route
        if asker.token:
            reading, _ = route.score(Asker(None, asker.timeout_s), route.batch(pair, [pair.rights[0]]))
            if reading.values is not None:
                message = "the token is not checked: a request without one is scored as well"
                yield Proof(name="token", level="warning", about=title, message=message)
            else:
                yield Proof(name="token", level="ok", about=title, message="a request without the token is refused")
        elif not is_loopback(route.url):
            message = "no token is asked for: whoever reaches this port can ask it for the golds, guess by guess"
            yield Proof(name="token", level="warning", about=title, message=message)
