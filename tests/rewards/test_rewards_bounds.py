"""What the server does not take, how it says so, what it counts, and what never reaches its log."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from reward_server import RunningServer, launch

pytestmark = pytest.mark.faults

NO_GOLD = r"\boxed{}"  # blank for accuracy, though not as a text
SECRET = "the secret prompt"
MINE = """
import time
def naps(completions, answer): time.sleep(float(answer[0])); return [1.0] * len(completions)
def leaks(completions, answer): raise KeyError(answer[0])
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningServer]]:
    folder = tmp_path_factory.mktemp("bounds")
    (folder / "mine.py").write_text(MINE)
    (folder / "gold.jsonl").write_text(json.dumps({"question": SECRET, "answer": NO_GOLD}) + "\n")
    limits = ("--max-batch", "4", "--max-queue", "6", "--request-timeout-s", "1.5")
    commands = {
        "slow": ["--function", "mine.py:naps", *limits],
        "quick": ["--function", "exact_match", "--workers", "0"],
        "leaks": ["--function", "mine.py:leaks", "--function", "accuracy", "--gold", "gold.jsonl"],
    }
    running = {name: launch(*args, cwd=folder) for name, args in commands.items()}
    try:
        for server in running.values():
            server.wait_ready()
        yield running
    finally:
        for server in running.values():
            server.end()


def body(count: int, answer: str = "0", completion: str = "a") -> dict[str, Any]:
    return {"prompts": [SECRET] * count, "completions": [completion] * count, "columns": {"answer": [answer] * count}}


def post(server: RunningServer, content: dict[str, Any], path: str = "/v1/score") -> requests.Response:
    return requests.post(server.url + path, json=content, timeout=20)


def samples(server: RunningServer, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels; 0 where there are none."""
    text = requests.get(server.url + "/metrics", timeout=10).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def connect(server: RunningServer) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname or "", address.port or 0), timeout=20)


def answer_on(sock: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of all that comes until the server closes."""
    raw = b""
    while chunk := sock.recv(65_536):
        raw += chunk
    head, _, content = raw.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in rest), content


def test_a_full_queue_is_503_with_retry_after(servers: dict[str, RunningServer]) -> None:
    slow = servers["slow"]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, slow, body(4, "0.8"))
        time.sleep(0.3)
        refused = post(slow, body(3))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "4 samples are waiting" in refused.json()["error"]["message"]
        assert samples(slow, "rewards_queue_samples") == 4
        began = time.monotonic()
        assert requests.get(slow.url + "/health", timeout=5).status_code == 200
        assert time.monotonic() - began < 0.3
        assert post(slow, body(2)).status_code == 200  # six fit
        assert first.result(20).json()["rewards"] == [1.0] * 4
    assert samples(slow, "rewards_queue_samples") == 0
    assert samples(slow, "rewards_requests_total", dialect="native", status="503") == 1


def test_a_request_that_takes_too_long_is_504(servers: dict[str, RunningServer]) -> None:
    slow = servers["slow"]
    began = time.monotonic()
    late = post(slow, body(1, "9"))
    assert 1.4 < time.monotonic() - began < 3.0
    assert (late.status_code, "--request-timeout-s" in late.json()["error"]["message"]) == (504, True)
    assert samples(slow, "rewards_queue_samples") == 0


def test_a_body_that_does_not_come_is_408(servers: dict[str, RunningServer]) -> None:
    with connect(servers["slow"]) as sock:
        sock.sendall(b"POST /get_reward HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        began = time.monotonic()
        status, headers, content = answer_on(sock)
    assert 1.4 < time.monotonic() - began < 3.0
    assert (status, headers["connection"]) == (408, "close")
    assert "did not arrive" in json.loads(content)["error"]


def test_a_head_that_does_not_end_is_refused(servers: dict[str, RunningServer]) -> None:
    for piece in (b"X-Filler: " + b"a" * 1000 + b"\r\n", b"a" * 1000):  # many headers, and one without an end
        with connect(servers["quick"]) as sock:
            sock.sendall(b"POST /v1/score HTTP/1.1\r\nX: ")
            with pytest.raises((BrokenPipeError, ConnectionResetError)):  # refused while we still send
                sock.sendall(piece * 10_000)
    with connect(servers["quick"]) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\n" + b"X-Filler: " + b"a" * 66_000)
        status, headers, content = answer_on(sock)
        assert (status, headers["content-type"]) == (431, "application/json")
        assert "65536 bytes" in json.loads(content)["error"]["message"]


def test_a_connection_without_a_head_is_closed(servers: dict[str, RunningServer]) -> None:
    """Slow loris: a byte now and then does not keep it open. So it is for the second request of a connection."""
    for before in (b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"):
        with connect(servers["slow"]) as sock:
            began = time.monotonic()
            if before:
                sock.sendall(before)
                assert sock.recv(65_536).startswith(b"HTTP/1.1 200 OK")
            for byte in b"POST /v1":
                sock.sendall(bytes([byte]))
                time.sleep(0.1)
            status, _, content = answer_on(sock)
        assert 1.4 < time.monotonic() - began < 3.0
        assert (status, "within 1.5 s" in json.loads(content)["error"]["message"]) == (408, True)


def test_what_is_not_http_gets_json(servers: dict[str, RunningServer]) -> None:
    with connect(servers["quick"]) as sock:
        sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        status, headers, content = answer_on(sock)
    assert (status, headers["content-type"], json.loads(content)["error"]["kind"]) == (400, "application/json", "input")


def test_requests_after_each_other_and_in_one_piece(servers: dict[str, RunningServer]) -> None:
    content = json.dumps(body(1, "a" * 70_000, "a" * 70_000)).encode()  # larger than a head may be
    head = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content)
    last = head.replace(b"Host: x", b"Host: x\r\nConnection: close")
    with connect(servers["quick"]) as sock:
        sock.sendall((head + content) * 3 + last + content)
        raw = b""
        while chunk := sock.recv(65_536):
            raw += chunk
    assert raw.count(b"HTTP/1.1 200 OK") == 4
    assert raw.count(b'"rewards":[1.0]') == 4


def test_metrics_count_requests_samples_and_seconds(servers: dict[str, RunningServer]) -> None:
    quick = servers["quick"]
    before = {name: samples(quick, f"rewards_{name}_total", dialect="vime") for name in ("requests", "samples")}
    sample = {"prompt": "p", "response": "4", "label": "4"}
    for _ in range(3):
        assert post(quick, sample, "/remote_rm").status_code == 200
    assert post(quick, {"prompt": "p"}, "/remote_rm").status_code == 422
    assert samples(quick, "rewards_samples_total", dialect="vime") - before["samples"] == 3
    assert samples(quick, "rewards_requests_total", dialect="vime", status="200") == 3
    assert samples(quick, "rewards_requests_total", dialect="vime", status="422") == 1
    assert samples(quick, "rewards_function_seconds_count", function="exact_match") >= 3
    assert samples(quick, "rewards_errors_total", kind="input") >= 1
    assert samples(quick, "rewards_ready") == 1
    leaks = servers["leaks"]
    assert post(leaks, body(2)).status_code == 500
    assert samples(leaks, "rewards_errors_total", kind="exception") >= 1
    assert samples(leaks, "rewards_workers_alive") == 1
    assert samples(leaks, "rewards_worker_restarts") == 0


def test_nothing_of_the_samples_is_logged(servers: dict[str, RunningServer]) -> None:
    """Not on errors either: malformed bodies, functions that raise with a text, unusable gold answers."""
    leaks = servers["leaks"]
    requests.post(leaks.url + "/v1/score", data=f'{{"prompts": ["{SECRET}'.encode(), timeout=10)
    for path, content in (
        ("/v1/score", body(2, NO_GOLD)),
        ("/v1/score", {**body(2), SECRET: 1}),
        ("/get_reward", {"prompts": [SECRET], "responses": [NO_GOLD]}),
        ("/get_reward", {"query": [SECRET], "prompts": ["another"], "labels": [NO_GOLD]}),
        ("/remote_rm", {"prompt": SECRET, "response": "4", "label": NO_GOLD}),
    ):
        assert post(leaks, content, path).status_code >= 400
    requests.get(leaks.url + f"/v1/{SECRET}", timeout=10)
    deadline = time.monotonic() + 10
    while "accuracy cannot use" not in "".join(leaks.stderr) and time.monotonic() < deadline:
        time.sleep(0.05)
    said = "".join(leaks.stderr)
    assert "accuracy cannot use 1 of 1 gold answers (row 1): it fails on them" in said
    assert "secret" not in said
    assert "boxed" not in said


def test_log_samples_is_a_line_per_sample(tmp_path: Path) -> None:
    server = launch("--function", "exact_match", "--workers", "0", "--log-samples", cwd=tmp_path)
    try:
        server.wait_ready()
        content = {"prompts": ["p", "q"], "completions": ["a", "\ud800"], "columns": {"answer": ["a", "b"]}}
        assert post(server, content).status_code == 200
        deadline = time.monotonic() + 5
        while len(server.stderr) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        lines = [json.loads(line) for line in server.stderr]
    finally:
        server.end()
    assert [(line["prompt"], line["completion"], line["reward"]) for line in lines] == [
        ("p", "a", 1.0),
        ("q", "\ud800", 0.0),
    ]
    assert (lines[0]["dialect"], lines[0]["columns"], lines[1]["index"]) == ("native", {"answer": "a"}, 1)


def test_the_token_guards_everything_but_health(tmp_path: Path) -> None:
    server = launch("--function", "format", "--workers", "0", "--token-env", "T", cwd=tmp_path, env={"T": "s3cret"})
    try:
        server.wait_ready()
        for path in ("/info", "/metrics", "/openapi.json"):
            assert requests.get(server.url + path, timeout=5).status_code == 401
            given = requests.get(server.url + path, headers={"Authorization": "Bearer s3cret"}, timeout=5)
            assert given.status_code == 200
        for path in ("/v1/score", "/get_reward", "/remote_rm"):
            refused = post(server, {}, path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    finally:
        server.end()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--max-queue", "8", "--max-batch", "9"], "such a batch never fits"),
        (["--max-batch", "0"], "--max-batch and --max-body-mb must be numbers above 0"),
        (["--request-timeout-s", "0"], "--request-timeout-s must be above 0"),
        (["--gold-answer", "a"], "--gold FILE, which is not given"),
        (["--gold", "gone.jsonl"], "cannot be read"),
    ],
)
def test_flags_that_cannot_be_meant(tmp_path: Path, flags: list[str], words: str) -> None:
    server = launch("--function", "format", "--workers", "0", *flags, cwd=tmp_path)
    try:
        assert server.process.wait(20) == 3
        time.sleep(0.1)  # for the thread that collects its stderr
        assert words in "".join(server.stderr)
    finally:
        server.end()
