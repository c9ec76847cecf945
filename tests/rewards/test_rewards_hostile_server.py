"""Servers that answer with nonsense, or a byte now and then: every wait ends, and what comes is a RewardError."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rewards.asking.score_reply import parse_functions
from rewards.client import RemoteReward, RewardClient, RewardError, is_loopback, parse_reply
from rewards.commands import main
from rewards.functions.remote import remote

pytestmark = pytest.mark.faults

LIMIT_S = 0.6
GOOD: dict[str, Any] = {"components": {"f": [1.0]}, "rewards": [1.0], "errors": [], "logs": {}, "aborted": []}
INFO: dict[str, Any] = {"functions": [{"name": "f", "shape": "trl", "wants_completion_ids": False}]}
OK = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "body": (OK + b"Content-Length: 500\r\n\r\n", b" "),
    "header": (OK, b"X"),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "100": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@contextmanager
def listening(answer: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """A server on raw sockets: `answer` gets each connection and the head of its request."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        with connection:
            try:
                answer(connection, connection.recv(65536))
            except OSError:
                gone.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


gone = threading.Event()


def dripping(first: bytes, drop: bytes) -> Callable[[socket.socket, bytes], None]:
    def answer(connection: socket.socket, head: bytes) -> None:
        connection.sendall(first)
        for _ in range(100):
            connection.sendall(drop)
            time.sleep(0.05)

    return answer


def whole(status: str, body: bytes, header: str = "") -> Callable[[socket.socket, bytes], None]:
    def answer(connection: socket.socket, head: bytes) -> None:
        said = json.dumps(INFO).encode() if b"GET /info" in head and status == "200 OK" else body
        length = f"Content-Length: {len(said)}\r\nConnection: close\r\n"
        connection.sendall(f"HTTP/1.1 {status}\r\n{length}{header}\r\n".encode() + said)

    return answer


@pytest.mark.parametrize("drip", DRIPS)
def test_a_drip_meets_the_deadline_everywhere(drip: str) -> None:
    gone.clear()
    with listening(dripping(*DRIPS[drip])) as url:
        client, began = RewardClient(url, timeout_s=LIMIT_S), time.monotonic()
        assert client.health() is False
        for ask in (
            lambda: client.score([""], [""], {}),
            lambda: RemoteReward(url, timeout_s=LIMIT_S)([""], [""]),
            lambda: remote([""], [""], url=url, timeout_s=LIMIT_S),
        ):
            with pytest.raises(RewardError, match="no complete answer"):
                ask()
        assert time.monotonic() - began < 4 * (LIMIT_S + 0.5)
        assert gone.wait(1.0)  # the sockets are shut, so no thread of ours stays behind


BODIES = {
    "deep": b"[" * 200_000,
    "digits": b'{"a": ' + b"9" * 5000 + b"}",
    "null errors": b'{"error": {"message": "m"}, "errors": null}',
    "half an emoji": b'{"error": "\\ud800"}',
    "no text": b"\xff\xfe\xfd",
}


@pytest.mark.parametrize("status", ["200 OK", "500 No"])
@pytest.mark.parametrize("body", BODIES)
def test_bodies_of_nonsense(status: str, body: str, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(whole(status, BODIES[body])) as url:
        for ask in (
            lambda: RewardClient(url, timeout_s=2.0).score([""], [""], {}),
            lambda: RemoteReward(url, timeout_s=2.0)([""], [""]),
            lambda: remote([""], [""], url=url, timeout_s=2.0, dialect="openrlhf"),
        ):
            with pytest.raises(RewardError) as raised:
                ask()
            assert str(raised.value).encode().isascii() or "\ufffd" in str(raised.value)
        assert main(["probe", url, "--dialect", "openrlhf", "--timeout-s", "2"]) == 2
        capsys.readouterr().out.encode()


@pytest.mark.parametrize("wait", ["Fri, 31 Dec 99999 23:59:59 GMT", "9" * 5000, "9" * 400])
def test_a_busy_server_with_a_time_that_is_none(wait: str) -> None:
    with listening(whole("503 No", b"busy", f"Retry-After: {wait}\r\n")) as url:
        with pytest.raises(RewardError, match="503: busy"):
            RewardClient(url, timeout_s=LIMIT_S).info()
        with pytest.raises(RewardError, match="503: busy"):
            remote([""], [""], url=url, timeout_s=LIMIT_S)


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with listening(whole("422 No", b'{"error": "\\u001b[2J\\u0007\\u0000"}')) as url:
        main(["probe", url, "--dialect", "openrlhf", "--timeout-s", "2"])
        out = capsys.readouterr().out
        assert r"\x1b[2J\x07\x00" in out
        assert "\x1b" not in out
        with pytest.raises(RewardError, match=r"\\x1b\[2J"):
            RewardClient(url).info()


def test_health_never_raises() -> None:
    with listening(whole("302 Found", b"", "Location: http://[::1\r\n")) as url:
        assert RewardClient(url).health() is False
    for url in ("", "http://", "http://[::1", "http://127.0.0.1:99999", "http://\ud800:1", f"http://{'a' * 300}.x:1"):
        assert not is_loopback(url) or "127" in url
        assert RewardClient(url, timeout_s=2.0).health() is False
        with pytest.raises(RewardError):
            RewardClient(url, timeout_s=2.0).info()


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": None}, {"seconds": "abc"}, {"seconds": 10**400}, {"seconds": True}, {"failed": None},
        {"failed": [1]}, {"aborted": ["x"]}, {"aborted": [-1]}, {"logs": {"f/x": 5}}, {"logs": {"f/x": [1, 2]}},
        {"errors": [5]}, {"errors": [{"index": 0}]}, {"errors": [{"message": "m", "index": 1}]},
        {"rewards": [10**400]},
    ],
)  # fmt: skip
def test_every_field_of_a_reply_is_checked(wrong: dict[str, Any]) -> None:
    assert parse_reply(GOOD, 1).seconds == 0.0
    with pytest.raises(RewardError):
        parse_reply({**GOOD, **wrong}, 1)


def test_every_field_of_info_is_checked() -> None:
    (found,) = parse_functions(INFO)
    assert (found.name, found.required_columns) == ("f", ())
    sound = INFO["functions"][0]
    bad = [5, "f", {}, {**sound, "name": 1}, {**sound, "only": {"x": 1}}, {**sound, "required_columns": "ab"}]
    for info in ([], {}, {"functions": 5}, *({"functions": [one]} for one in bad)):
        with pytest.raises(RewardError, match="/info"):
            parse_functions(info)


def test_a_reply_without_the_function_that_was_asked_for() -> None:
    body = json.dumps({**GOOD, "components": {"g": [1.0]}}).encode()
    with listening(whole("200 OK", body)) as url, pytest.raises(RewardError, match="no rewards of 'f'"):
        RemoteReward(url, function="f")([""], [""])
