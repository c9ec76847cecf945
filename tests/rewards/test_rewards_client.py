import json
import math
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from email.utils import formatdate
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
    "the reply's raw has 1 entries for 2": {"raw": [1.0]},
}


def test_a_good_reply() -> None:
    assert parse_reply(GOOD, 2).rewards == [1.0, None]
    assert (parse_reply(GOOD, 2).raw, parse_reply(GOOD, 2).failed) == (None, [])
    processed = parse_reply({**GOOD, "raw": [2.0, None], "failed": [0]}, 2)
    assert (processed.raw, processed.failed) == ([2.0, None], [0])


@pytest.mark.parametrize("words", BAD_REPLIES)
def test_replies_that_are_none(words: str) -> None:
    with pytest.raises(RewardError, match=words):
        parse_reply({**GOOD, **BAD_REPLIES[words]}, 2)


Script = list[tuple[int, bytes] | tuple[int, bytes, dict[str, str]]]


@pytest.fixture
def scripted() -> Iterator[tuple[RewardClient, Script, list[str]]]:
    """A server that gives the scripted answers in turn, and the paths it was asked for."""
    script: Script = []
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, body, *more = script.pop(0)
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | (more[0] if more else {})).items():
                self.send_header(name, value)
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


def test_only_503_is_tried_again(scripted: tuple[RewardClient, Script, list[str]]) -> None:
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


BUSY = b'{"error": {"message": "busy"}}'


def test_a_busy_server_is_asked_again_when_it_says_so(scripted: tuple[RewardClient, Script, list[str]]) -> None:
    client, script, asked = scripted
    began = time.monotonic()
    waits = ["0"] * 6 + ["1", formatdate(time.time() - 9, usegmt=True), "soon"]
    script += [*((503, BUSY, {"Retry-After": wait}) for wait in waits), (503, BUSY), (200, b"{}")]
    assert client.info() == {}
    assert len(asked) == 11  # more than where the server does not say when
    assert 2.4 <= time.monotonic() - began < 5.0


def test_no_wait_goes_beyond_the_deadline(scripted: tuple[RewardClient, Script, list[str]]) -> None:
    client, script, asked = scripted
    script += [(503, BUSY, {"Retry-After": "60"})]
    began = time.monotonic()
    with pytest.raises(RewardError, match="503: busy"):
        client.info()
    assert time.monotonic() - began < 1.0
    assert len(asked) == 1


def test_a_reply_that_breaks_off_is_asked_for_again(scripted: tuple[RewardClient, Script, list[str]]) -> None:
    client, script, asked = scripted
    script += [(200, b'{"a"', {"Content-Length": "8", "Connection": "close"}), (200, b'{"a": 1}')]
    assert client.info() == {"a": 1}
    assert len(asked) == 2


def test_no_redirect_is_followed(scripted: tuple[RewardClient, Script, list[str]]) -> None:
    client, script, asked = scripted
    script += [(307, b"", {"Location": "/elsewhere"}), (200, b"{}")]
    with pytest.raises(RewardError, match="answered 307"):
        client.info()
    assert asked == ["/info"]


@pytest.mark.parametrize(
    ("value", "words"), [(math.nan, "a float"), (object(), "a object"), (datetime(2024, 1, 1), "a datetime")]
)
def test_what_json_cannot_say_is_not_sent(value: object, words: str) -> None:
    client = RewardClient("http://127.0.0.1:9")
    message = f"cannot be sent as JSON: column 'x' of sample 1 holds {words} .*remove the column"
    with pytest.raises(RewardError, match=message):
        client.score(["", ""], ["", ""], {"y": [1, 2], "x": [0, value]})


def test_a_column_must_be_a_list() -> None:
    with pytest.raises(RewardError, match="column 'x' is a str, not a list"):
        RewardClient("http://127.0.0.1:9").score([""], [""], {"x": "abc"})


def test_loopback() -> None:
    assert all(is_loopback(f"http://{host}:1/") for host in ("127.0.0.1", "localhost", "[::1]", "127.1.2.3"))
    assert not any(is_loopback(f"http://{host}:1/") for host in ("10.0.0.1", "localhost.example.com"))
