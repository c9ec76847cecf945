import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rewards.client import RewardClient, RewardError, is_loopback, parse_reply

GOOD: dict[str, Any] = {
    "components": {"f": [1.0, None]},
    "rewards": [1.0, None],
    "errors": [],
    "logs": {},
    "aborted": [1],
    "seconds": 0.1,
}

BAD_REPLIES: dict[str, dict[str, Any]] = {
    "no valid 'rewards'": {"rewards": None},
    "no valid 'components'": {"components": [1.0]},
    "rewards has 1 entries for 2": {"rewards": [1.0]},
    r"components\['f'\] has 3 entries": {"components": {"f": [1.0, 1.0, 1.0]}},
    "nan for sample 1": {"rewards": [1.0, math.nan]},
    "True for sample 0": {"rewards": [True, 1.0]},
    r"\[1.0\] for sample 0": {"rewards": [[1.0], 1.0]},
}


def test_a_good_reply() -> None:
    assert parse_reply(GOOD, 2).rewards == [1.0, None]


@pytest.mark.parametrize("words", BAD_REPLIES)
def test_replies_that_are_none(words: str) -> None:
    with pytest.raises(RewardError, match=words):
        parse_reply({**GOOD, **BAD_REPLIES[words]}, 2)


@pytest.fixture
def scripted() -> Iterator[tuple[RewardClient, list[tuple[int, bytes]], list[str]]]:
    """A server that gives the scripted answers in turn, and the paths it was asked for."""
    script: list[tuple[int, bytes]] = []
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, body = script.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    client = RewardClient(f"http://127.0.0.1:{server.server_port}", timeout_s=5.0)
    yield client, script, asked
    client.close()
    server.shutdown()
    server.server_close()


def test_only_503_is_tried_again(scripted: tuple[RewardClient, list[tuple[int, bytes]], list[str]]) -> None:
    client, script, asked = scripted
    busy = json.dumps({"error": {"message": "starting"}}).encode()
    script += [(503, busy), (503, busy), (200, b'{"a": 1}')]
    assert client.info() == {"a": 1}
    assert len(asked) == 3
    for status in (500, 504, 400, 302):
        script[:] = [(status, busy)]
        with pytest.raises(RewardError, match=f"answered {status}: starting"):
            client.info()
    for body in (b"<html>", b"[]"):
        script[:] = [(200, body)]
        with pytest.raises(RewardError, match="answered 200 with"):
            client.info()
    script[:] = [(404, b"<html>gone")]
    with pytest.raises(RewardError, match="404: <html>gone"):
        client.info()


def test_what_json_cannot_say_is_not_sent() -> None:
    client = RewardClient("http://127.0.0.1:9")
    for value in (math.nan, object()):
        with pytest.raises(RewardError, match="cannot be sent as JSON"):
            client.score([""], [""], {"x": [value]})


def test_loopback() -> None:
    assert all(is_loopback(f"http://{host}:1/") for host in ("127.0.0.1", "localhost", "[::1]", "127.1.2.3"))
    assert not any(is_loopback(f"http://{host}:1/") for host in ("10.0.0.1", "localhost.example.com"))
    assert not RewardClient("http://127.0.0.1:1")._session.trust_env
