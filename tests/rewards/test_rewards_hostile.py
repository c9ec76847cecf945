"""Bodies made from the server's own /openapi.json, and broken in many ways, against one real server.

By hand, with ten times as many and other ones each time:
    HOSTILE_BODIES=10000 python -m pytest -q tests/rewards/test_rewards_hostile.py --timeout 900
"""

import json
import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from reward_server import RunningServer, launch

pytestmark = pytest.mark.faults

BODIES = int(os.environ.get("HOSTILE_BODIES", "1000"))
WITHIN_S = 5.0
MOST_GROWTH = 24 * 2**20  # bytes of the server and its worker, from a tenth of the bodies to the last
PATHS = ("/v1/score", "/get_reward", "/remote_rm")
MINE = """
def takes_all(prompts, completions, answer=None, **columns):
    return [float(len(str((c, columns)))) for c in completions]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "mine.py").write_text(MINE)
    limits = ("--max-batch", "64", "--max-body-mb", "0.25", "--request-timeout-s", "2")
    running = launch("--function", "format", "--function", "mine.py:takes_all", *limits, cwd=folder)
    try:
        running.wait_ready()
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def document(server: RunningServer) -> dict[str, Any]:
    return requests.get(server.url + "/openapi.json", timeout=5).json()


LONE = st.sampled_from(["\ud800", "\udfff", "a\ud83d"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(min_value=10**19, max_value=10**40) | st.text() | LONE
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
TEXTS = st.text(max_size=30) | LONE | st.just("<think>a</think><answer>b</answer>")
CHATS = st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": TEXTS}), max_size=3)
JUNK = (
    b"\xff",
    b"\xed\xa0\x80",
    b"\x00",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 5000,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"\\u",
)


def described(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema of the document allows."""
    if "anyOf" in schema:
        return st.one_of([described(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return st.one_of([described({**schema, "type": kind}) for kind in kinds])
    if kinds == "array":
        return st.lists(described(schema.get("items", {})), max_size=4)
    if kinds == "object":
        known = {key: described(each) for key, each in schema.get("properties", {}).items()}
        needed = {key: known.pop(key) for key in schema.get("required", ())}
        others = st.just({})
        if (more := schema.get("additionalProperties", True)) is not False:
            others = st.dictionaries(st.text(max_size=5), VALUES if more is True else described(more), max_size=2)
        return st.tuples(others, st.fixed_dictionaries(needed, optional=known)).map(lambda both: {**both[0], **both[1]})
    return {"string": TEXTS, "integer": st.integers(), "boolean": st.booleans(), "null": st.none()}.get(kinds, VALUES)


@st.composite
def sound(draw: st.DrawFn, path: str) -> dict[str, Any]:
    """A body that is to be scored, with columns of anything."""
    n = draw(st.integers(0, 4))

    def column(entries: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(entries, min_size=n, max_size=n))

    if path == "/remote_rm":
        return {"prompt": draw(TEXTS | CHATS), "response": draw(TEXTS), "label": draw(VALUES)}
    if path == "/get_reward" and draw(st.booleans()):
        prompts = column(TEXTS)
        return {"query": [p + draw(TEXTS) for p in prompts], "prompts": prompts, "labels": column(VALUES)}
    if path == "/get_reward":
        return {"prompts": column(TEXTS), "responses": column(TEXTS), "golden_responses": column(TEXTS)}
    extra = draw(st.text(min_size=1, max_size=5))
    return {"prompts": column(TEXTS | CHATS), "completions": column(TEXTS | CHATS), "columns": {extra: column(VALUES)}}


def somewhere(draw: st.DrawFn, body: Any) -> Any:
    """The body with one value, at any depth, exchanged, taken away, or added."""
    if isinstance(body, dict) and body and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(body)))
        return {**body, key: somewhere(draw, body[key])}
    if isinstance(body, list) and body and draw(st.booleans()):
        at = draw(st.integers(0, len(body) - 1))
        return [*body[:at], somewhere(draw, body[at]), *body[at + 1 :]]
    if isinstance(body, dict) and draw(st.booleans()):
        return {**body, draw(st.text(max_size=5)): draw(VALUES)}
    if isinstance(body, (dict, list)) and body and draw(st.booleans()):
        return type(body)(list(body.items() if isinstance(body, dict) else body)[1:])
    return draw(VALUES)


@st.composite
def hostile(draw: st.DrawFn, path: str, schema: dict[str, Any]) -> bytes:
    body = draw(sound(path) | described(schema))
    for _ in range(draw(st.integers(0, 2))):
        body = somewhere(draw, body)
    raw = json.dumps(body, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    how = draw(st.sampled_from(["", "", "cut", "junk", "twice", "bits"]))
    at = draw(st.integers(0, len(raw)))
    if how == "cut":
        return raw[:at]
    if how == "junk":
        return raw[:at] + draw(st.sampled_from(JUNK)) + raw[at:]
    if how == "twice" and raw.startswith(b"{") and len(raw) > 2:
        return raw[:-1] + b"," + raw[1:]
    if how == "bits" and at < len(raw):
        return raw[:at] + bytes([raw[at] ^ draw(st.integers(1, 255))]) + raw[at + 1 :]
    return raw


def memory(server: RunningServer) -> int:
    main = psutil.Process(server.process.pid)
    return sum(process.memory_info().rss for process in (main, *main.children(recursive=True)))


def test_hostile_bodies(server: RunningServer, document: dict[str, Any]) -> None:
    schemas = {path: document["paths"][path]["post"] for path in PATHS}
    bodies = st.sampled_from(PATHS).flatmap(
        lambda path: hostile(path, schemas[path]["requestBody"]["content"]["application/json"]["schema"]).map(
            lambda raw: (path, raw)
        )
    )
    validators = {
        (path, int(code)): Draft202012Validator(reply["content"]["application/json"]["schema"])
        for path, post in schemas.items()
        for code, reply in post["responses"].items()
    }
    address = urlsplit(server.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=WITHIN_S)
    seen: Counter[tuple[str, int]] = Counter()
    sizes: list[int] = []

    @settings(
        max_examples=BODIES,
        derandomize="HOSTILE_BODIES" not in os.environ,
        database=None,
        deadline=WITHIN_S * 1000,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(bodies)
    def one(asked: tuple[str, bytes]) -> None:
        path, raw = asked
        connection.request("POST", path, raw, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        content = reply.read()
        assert reply.headers["content-type"] == "application/json"
        assert reply.status != 500
        validators[path, reply.status].validate(json.loads(content))
        seen[path, reply.status] += 1
        if sum(seen.values()) in (BODIES // 10, BODIES):
            sizes.append(memory(server))

    one()
    connection.close()
    assert sum(seen.values()) >= BODIES
    for path in PATHS:
        assert seen[path, 200] > BODIES / 60, seen  # else only the parser was tried
        assert sum(count for (at, status), count in seen.items() if at == path and status != 200) > BODIES / 60, seen
    assert sizes[-1] - sizes[0] < MOST_GROWTH
    assert server.client().score([""], ["a"], {}).components["format"] == [0.0]
    assert server.process.poll() is None
    assert "internal error" not in "".join(server.stderr)


def raw_answer(server: RunningServer, sent: bytes) -> tuple[int, bytes]:
    """What one connection gets for these bytes, which the server must close, or answer, in time."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=WITHIN_S) as sock:
        sock.sendall(sent)
        got = b""
        while not (b"\r\n\r\n" in got and got.rstrip().endswith(b"}")):
            chunk = sock.recv(65_536)
            if not chunk:
                break
            got += chunk
    head, _, content = got.partition(b"\r\n\r\n")
    return int(head.split()[1]), content


def request(head: bytes, content: bytes) -> bytes:
    return b"POST /v1/score HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n" + content


BODY = b'{"prompts": ["p"], "completions": ["c"]}'
LENGTH = b"Content-Length: %d"
FRAMES: list[tuple[str, bytes, set[int]]] = [
    ("more announced than sent", request(LENGTH % (len(BODY) + 9), BODY), {408}),
    ("less announced than sent", request(LENGTH % (len(BODY) - 9), BODY), {400}),
    ("length is no number", request(b"Content-Length: ten", BODY), {400}),
    ("negative length", request(b"Content-Length: -1", BODY), {400}),
    ("two lengths", request(b"Content-Length: 40\r\nContent-Length: 41", BODY), {400}),
    ("length and chunks", request(b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"), {400}),
    ("good chunks", request(b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)), {200}),
    ("chunk size is no number", request(b"Transfer-Encoding: chunked", b"zz\r\n" + BODY), {400, 499}),
    ("chunks that do not end", request(b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (len(BODY), BODY)), {408}),
    (
        "chunks beyond the limit",
        request(b"Transfer-Encoding: chunked", b"80000\r\n" + b" " * 0x80000 + b"\r\n0\r\n\r\n"),
        {413},
    ),
    ("too long", request(LENGTH % 2**20, b" " * 2**20), {413}),
    ("no length at all", request(b"X: y", b""), {400}),
    (
        "upgrade",
        request(b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + LENGTH % len(BODY), BODY),
        {400},
    ),  # its body is not read
    ("nothing said of JSON", request(b"Content-Type: text/xml\r\n" + LENGTH % len(BODY), BODY), {200}),
    ("compressed", request(b"Content-Encoding: gzip\r\n" + LENGTH % 4, b"\x1f\x8b\x08\x00"), {400}),
    ("not HTTP", b"hello there\r\n\r\n", {400}),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 405}),
    ("path in bytes", b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", {400, 404}),
    ("header without a colon", b"GET /health HTTP/1.1\r\nHost x\r\n\r\n", {400}),
]


def test_hostile_frames(server: RunningServer) -> None:
    """Wrong lengths, chunks and heads: each connection is answered in JSON and none hangs."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda frame: raw_answer(server, frame[1]), FRAMES))
    for (name, _, expected), (status, content) in zip(FRAMES, answers, strict=True):
        assert status in expected, (name, status, content)
        assert isinstance(json.loads(content), dict), (name, content)
    assert server.client().health()


def test_wrong_methods_and_paths(server: RunningServer, document: dict[str, Any]) -> None:
    for path, known in document["paths"].items():
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - {name.upper() for name in known}:
            answer = requests.request(method, server.url + path, timeout=WITHIN_S)
            assert (answer.status_code, bool(answer.json()["error"])) == (405, True), (method, path)
    for path in ("/", "/get_reward/", "/docs", "/v1", "/v1/score/x", "/%00", "/..%2f..%2fetc/passwd"):
        answer = requests.post(server.url + path, data=BODY, timeout=WITHIN_S)
        assert (answer.status_code, bool(answer.json()["error"])) == (404, True), path


def test_the_document_is_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == {*PATHS, "/health", "/info", "/metrics", "/openapi.json"}
    for path in PATHS:
        post = document["paths"][path]["post"]
        assert {"200", "400", "401", "408", "413", "422", "500", "503", "504"} == set(post["responses"])
        for content in (post["requestBody"], *post["responses"].values()):
            Draft202012Validator.check_schema(content["content"]["application/json"]["schema"])
