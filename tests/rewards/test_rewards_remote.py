"""The built-in `remote` against real servers: ours, and ones that misbehave on purpose."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from reward_server import StartServer
from scripted_server import Answer, Scripted, scripted_server

from rewards.asking.dialects import DIALECTS
from rewards.asking.forwarding import address
from rewards.asking.refusal import FIRST_PAUSE_S, LONGEST_PAUSE_S, own_words, retry_after_s
from rewards.asking.score_reply import RewardError
from rewards.contract import PrepareError
from rewards.functions.remote import prepare, remote

NATIVE: dict[str, Any] = {"components": {"f": [1.0, None]}, "rewards": [1.0, None], "errors": [], "logs": {}}
NATIVE |= {"aborted": [], "seconds": 0.0}
CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": "1+1?"}]
SAID = [{"role": "assistant", "content": "2"}]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with scripted_server() as server:
        yield server


def ask(server: Scripted, dialect: str, **more: Any) -> list[Any]:
    given: dict[str, Any] = {"answer": ["2", "3"], "timeout_s": 5.0, **more}
    return remote(["1+1?", "1+2?"], ["2", "4"], url=server.url, dialect=dialect, **given)


def test_native_sends_everything_and_logs_what_came(scripted: Scripted) -> None:
    logs: dict[str, Any] = {}
    error = {"index": 1, "message": "f raised"}
    scripted.will(200, {**NATIVE, "logs": {"f/x": [1, 2]}, "errors": [error]})
    more = {"statuses": ["completed", "truncated"], "log_extra": logs.__setitem__, "log_metric": print}
    assert ask(scripted, "native", functions=["f"], evaluation=True, trainer_state=None, **more) == [1.0, None]
    assert scripted.asked[0][:2] == (
        "/v1/score",
        {
            "prompts": ["1+1?", "1+2?"],
            "completions": ["2", "4"],
            "columns": {"answer": ["2", "3"]},
            "group_ids": None,
            "statuses": ["completed", "truncated"],
            "evaluation": True,
            "functions": ["f"],
        },
    )
    assert logs == {"f/x": [1, 2], "remote_error": [None, "f raised"]}


def test_align_anything_gets_the_bare_question(scripted: Scripted) -> None:
    scripted.will(200, {"rewards": [1.5]})
    assert remote([CHAT], [SAID], url=scripted.url, dialect="align_anything", answer=["2"]) == [1.5]
    assert scripted.asked[0][:2] == ("/get_reward", {"prompts": ["1+1?"], "responses": ["2"]})


def test_openrlhf_gets_queries_and_labels(scripted: Scripted) -> None:
    logs: dict[str, Any] = {}
    scripted.will(200, {"rewards": [1, 0.5], "scores": [1, 0], "extra_logs": {"len": [3, 4], "mean": 2}})
    assert ask(scripted, "openrlhf", log_extra=logs.__setitem__) == [1.0, 0.5]
    body = {"query": ["1+1?2", "1+2?4"], "prompts": ["1+1?", "1+2?"], "labels": ["2", "3"]}
    assert scripted.asked[0][:2] == ("/get_reward", body)
    assert logs == {"scores": [1, 0], "len": [3, 4]}
    ask(scripted, "openrlhf", label_column="other", other=["a", "b"])
    assert scripted.asked[1][1]["labels"] == ["a", "b"]
    with pytest.raises(ValueError, match=r"no column 'othe' \(did you mean other"):
        ask(scripted, "openrlhf", label_column="othe", other=["a", "b"])


def test_remote_rm_gets_one_sample_in_each_request(scripted: Scripted) -> None:
    scripted.will(200, 0.25).will(200, {"score": 1.0})
    found = remote(["q", "q"], ["a", "a"], url=scripted.url + "/rm?x=1", dialect="vime", label=[1, None])
    assert sorted(map(str, found)) == ["0.25", "{'score': 1.0}"]
    assert sorted((path, str(body)) for path, body, _ in scripted.asked) == [
        ("/rm?x=1", "{'prompt': 'q', 'response': 'a', 'label': 1}"),
        ("/rm?x=1", "{'prompt': 'q', 'response': 'a', 'label': None}"),
    ]
    scripted.answers[:] = []
    scripted.will(200, "1.0")
    with pytest.raises(RewardError, match=r"sample \d of 2: http://.* holds '1.0' for sample 0 instead of a finite"):
        ask(scripted, "vime")


def test_remote_rm_keeps_the_order(scripted: Scripted) -> None:
    def late(body: dict[str, Any]) -> Answer:
        number = int(body["response"])
        time.sleep(0.2 / (1 + number))  # the first ones come last
        return 200, b"%d" % number, {}

    scripted.reply = late
    began, numbers = time.monotonic(), list(range(40))
    assert remote([""] * 40, [str(n) for n in numbers], url=scripted.url, dialect="vime") == numbers
    assert time.monotonic() - began < 0.2 * 4  # one after another it would be 0.86 s of sleep alone


NO_REPLIES: dict[str, tuple[str, Any]] = {
    "rewards: 1 entries for 2 samples": ("align_anything", {"rewards": [1.0]}),
    "rewards: a float for 2 samples": ("align_anything", {"rewards": 1.0}),
    "nan for sample 1 instead of a finite number; it answered .*NaN": ("openrlhf", b'{"rewards": [1.0, NaN]}'),
    "inf for sample 0": ("openrlhf", b'{"rewards": [Infinity, 1.0]}'),
    "'1' for sample 0": ("align_anything", {"rewards": ["1", 1.0]}),
    "None for sample 1": ("align_anything", {"rewards": [1.0, None]}),
    "True for sample 0": ("align_anything", {"rewards": [True, 1.0]}),
    "no 'rewards' .it has .'error'": ("openrlhf", {"error": "broken"}),
    "is a list, not an object": ("openrlhf", [1.0, 1.0]),
    "rewards has 1 entries for 2": ("native", {**NATIVE, "rewards": [1.0]}),
    "answered 200 with something that is not JSON: <html>": ("native", b"<html>"),
    "holds None for sample 0": ("vime", b"null"),
    "holds 1000.* for sample 0": ("vime", b"1" + b"0" * 400),
    "something that is not JSON: 999": ("vime", b"9" * 5000),
    "nested|not JSON: .{9}": ("native", b"[" * 200_000),
    "errors hold 5": ("native", {**NATIVE, "errors": [5]}),
    "errors name sample 7 of 2": ("native", {**NATIVE, "errors": [{"index": 7, "message": "m"}]}),
}


@pytest.mark.parametrize("words", NO_REPLIES)
def test_a_reply_that_breaks_the_contract_is_not_asked_for_again(scripted: Scripted, words: str) -> None:
    dialect, body = NO_REPLIES[words]
    scripted.will(200, body)
    with pytest.raises(RewardError, match=words) as raised:
        ask(scripted, dialect)
    assert scripted.url in str(raised.value)
    assert len(scripted.asked) <= (2 if dialect == "vime" else 1)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, {"error": "no prompts"}, "answered 400: no prompts"),
        (422, {"error": {"message": "f needs the column 'x'", "value": None}}, "needs the column 'x'"),
        (429, b"slow down", "answered 429: slow down"),
        (500, {"detail": "boom"}, "answered 500: boom"),
        (504, {"error": {"message": "f exceeded its time limit", "value": "x"}}, "time limit; value: x"),
        (302, b"", "answered 302"),
    ],
)
def test_what_would_only_come_again_is_not_tried_again(scripted: Scripted, status: int, body: Any, words: str) -> None:
    scripted.will(status, body, Location="/elsewhere")
    with pytest.raises(RewardError, match=words):
        ask(scripted, "native")
    assert len(scripted.asked) == 1


def test_what_can_recover_is_tried_again(scripted: Scripted) -> None:
    scripted.will(503, {"error": {"message": "starting"}}, Retry_After="1").will(502, b"<html>").will(200, NATIVE)
    began = time.monotonic()
    assert ask(scripted, "native") == [1.0, None]
    assert len(scripted.asked) == 3
    assert 1.3 < time.monotonic() - began < 4.0


def test_the_budget_holds(scripted: Scripted) -> None:
    scripted.will(503, b"busy", Retry_After="60")
    began = time.monotonic()
    with pytest.raises(RewardError, match=r"answered 503: busy .tried 1 time.; the next try would be in 60 s"):
        ask(scripted, "native")
    assert time.monotonic() - began < 1.0
    scripted.answers[:] = []
    scripted.will(504, b"<html>gateway")
    with pytest.raises(RewardError, match=r"answered 504: <html>gateway \(tried 2 times"):
        ask(scripted, "native", retries=1)


def test_a_server_that_drips_meets_the_deadline(scripted: Scripted) -> None:
    scripted.will(200, NATIVE).drip_s = 0.1
    began = time.monotonic()
    with pytest.raises(RewardError, match="no complete answer"):
        ask(scripted, "native", timeout_s=0.5)
    assert time.monotonic() - began < 1.5


def test_a_server_that_never_answers_is_not_asked_twice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RewardError, match=r"no complete answer within 0\.[345]"):
            remote(["q"], ["a"], url=url, timeout_s=0.4)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RewardError, match=r"no connection.*tried 3 times"):
        remote(["q"], ["a"], url=url, retries=2, timeout_s=5.0)


def test_a_server_that_comes_back(scripted: Scripted) -> None:
    port = free_port()
    threading.Timer(
        0.3, _serve_once, (port, json.dumps({**NATIVE, "rewards": [2.0], "components": {}}).encode())
    ).start()
    assert remote(["q"], ["a"], url=f"http://127.0.0.1:{port}", timeout_s=5.0) == [2.0]


def _serve_once(port: int, body: bytes) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        connection, _ = server.accept()
        with connection:
            while b"}" not in connection.recv(65536):
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def test_our_own_server(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T", "secret")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    two = ("--function", "exact_match", "--function", "format", "--workers", "0")
    server = start_server(*two, "--token-env", "T", env={"T": "secret"})
    given: dict[str, Any] = {"url": server.url, "token_env": "T"}
    prepare(**given, functions=["exact_match"])
    assert remote(["q", "q"], ["2", "3"], answer=["2", "2"], functions=["exact_match"], **given) == [1.0, 0.0]
    with pytest.raises(PrepareError, match=r"no function 'exact_mach' \(did you mean exact_match"):
        prepare(**given, functions=["exact_mach"])
    with pytest.raises(PrepareError, match="401"):
        prepare(url=server.url)
    with pytest.raises(RewardError, match="answered 422: exact_match needs the column 'answer'"):
        remote(["q"], ["2"], **given)


def test_prepare_finds_nobody(monkeypatch: pytest.MonkeyPatch, scripted: Scripted) -> None:
    monkeypatch.setattr("rewards.functions.remote.REACHABLE_WITHIN_S", 0.3)
    url = f"http://127.0.0.1:{free_port()}"
    for dialect in DIALECTS:
        with pytest.raises(PrepareError, match=rf"does not answer.*params.url \({url}\)"):
            prepare(url=url, dialect=dialect)
    prepare(url=scripted.url, dialect="openrlhf")  # a server without a health route, but a server
    with pytest.raises(PrepareError, match="/health answered 404"):
        prepare(url=scripted.url)


@pytest.mark.parametrize(
    ("words", "params"),
    [
        ("url must be an address", {"url": "localhost:8000"}),
        ("no 'nativ' .did you mean native", {"dialect": "nativ"}),
        ("timeout_s must be", {"timeout_s": 0}),
        ("retries must be", {"retries": -1}),
        ("functions is a list of names", {"dialect": "openrlhf", "functions": ["f"]}),
        ("carry no labels", {"label_column": "answer"}),
        ("variable NOPE is unset", {"token_env": "NOPE"}),
    ],
)
def test_params_that_cannot_be_meant(words: str, params: dict[str, Any]) -> None:
    given = {"url": "http://127.0.0.1:9", **params}
    with pytest.raises(PrepareError, match=words):
        prepare(**given)
    with pytest.raises(ValueError, match=words):
        remote(["q"], ["a"], **given)


def test_what_json_cannot_say(scripted: Scripted) -> None:
    with pytest.raises(ValueError, match="cannot be sent as JSON"):
        ask(scripted, "native", x=[float("nan"), 1.0])


def test_addresses_and_headers() -> None:
    assert address("http://h:1", "/v1/score") == address("http://h:1/", "/v1/score") == "http://h:1/v1/score"
    assert address("https://h/rm/", "/v1/score") == "https://h/rm/"
    assert retry_after_s("7") == 7.0
    assert retry_after_s("Thu, 01 Jan 1970 00:00:00 GMT") == FIRST_PAUSE_S  # never a flood
    assert retry_after_s("soon") is None
    assert 3600 < (retry_after_s("9" * 400) or 0) <= LONGEST_PAUSE_S
    assert retry_after_s("9" * 5000) is retry_after_s("Fri, 31 Dec 99999 23:59:59 GMT") is None
    assert own_words(b'{"error": null}') is own_words(b"[]") is own_words(b"<") is None
