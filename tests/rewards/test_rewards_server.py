import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests
from reward_server import StartServer

from rewards.client import RewardError

UserFile = Callable[..., str]

SOURCE = """
import sys, time
def length(prompts, completions, **kwargs): print("noise"); return [float(len(c)) for c in completions]
def picky(completions):
    return [float("nan") if c == "nan" else time.sleep(9) if c == "sleep" else 1.0 for c in completions]
def naps(completions): time.sleep(1.5); return [1.0] * len(completions)
def counted(completions):
    with open("calls", "a") as f: f.write("x")
    time.sleep(0.1); return [1.0]
def env(completions):
    import os; return [float("MY_TOKEN" in os.environ)] * len(completions)
"""


def test_scores_in_order_and_counts(start_server: StartServer) -> None:
    length = json.dumps({"name": "exact", "target": "exact_match", "weight": 2})
    server = start_server("--function", "accuracy", "--function", length, env={"ORCHESTRATE_RUN_ID": "run-7"})
    client = server.client()
    n = 100
    golds = [str(i) for i in range(n)]
    answers = [str(i if i % 3 else i + 1) for i in range(n)]
    reply = client.score([""] * n, answers, {"answer": golds})
    right = [float(i % 3 > 0) for i in range(n)]
    assert reply.components == {"accuracy": right, "exact": right}
    assert reply.rewards == [3 * r for r in right]
    assert reply.errors == []
    info = client.info()
    assert (info["samples_scored"], info["requests"], info["run_id"]) == (n, 1, "run-7")
    assert info["pid"] == server.process.pid
    accuracy, exact = info["functions"]
    assert accuracy["self_test"]["passed"] is True
    assert (exact["name"], exact["weight"], exact["granularity"]) == ("exact", 2, "sample")
    assert exact["required_columns"] == ["answer"]
    assert len(exact["source_sha256"]) == 64
    assert client.score([], [], {"answer": []}).rewards == []


def test_fail_and_mask(start_server: StartServer, user_file: UserFile) -> None:
    spec = json.dumps({"target": f"{user_file(SOURCE)}:picky", "granularity": "sample"})
    batch = [""] * 3, ["a", "nan", "b"], {}
    strict = start_server("--function", spec, "--timeout-s", "1").client()
    with pytest.raises(RewardError, match="picky returned NaN for sample 1; value: nan") as caught:
        strict.score(*batch)
    assert caught.value.status == 500
    (error,) = caught.value.errors
    assert (error["function"], error["index"], error["value"], error["kind"]) == ("picky", 1, "nan", "contract")
    with pytest.raises(RewardError, match="sample 1") as caught:
        strict.score([""] * 2, ["a", "sleep"], {})
    assert caught.value.status == 504
    assert strict.info()["samples_scored"] == 0
    masked = start_server("--function", spec, "--on-error", "mask").client()
    reply = masked.score(*batch)
    assert reply.rewards == [1.0, None, 1.0]
    assert [e["index"] for e in reply.errors] == [1]
    assert masked.info()["samples_scored"] == 3
    aborted = masked.score(*batch, statuses=["completed", "aborted", "truncated"])
    assert (aborted.rewards, aborted.aborted, aborted.errors) == ([1.0, None, 1.0], [1], [])


BAD_REQUESTS: list[tuple[bytes | dict[str, Any], int, str]] = [
    (b"{", 400, "not valid JSON"),
    (b'{"prompts": [NaN], "completions": ["a"]}', 400, "NaN is not JSON"),
    (b"[" * 100_000, 400, "not valid JSON"),
    (b"\xff", 400, "not valid JSON"),
    (b"[]", 422, "must be a JSON object"),
    ({"prompts": ["a"]}, 422, "completions is missing"),
    ({"prompts": "ab", "completions": "ab"}, 422, "prompts must be a list"),
    ({"prompts": [1], "completions": ["a"]}, 422, "prompts[0]"),
    ({"prompts": ["a"], "completions": [None]}, 422, "completions[0]"),
    ({"prompts": ["a"], "completions": ["a", "b"]}, 422, "prompts: 1, completions: 2"),
    ({"prompts": ["a"], "completions": ["a"], "columns": {"answer": []}}, 422, "columns.answer: 0"),
    ({"prompts": ["a"], "completions": ["a"], "columns": {"answr": ["a"]}}, 422, "did you mean answr"),
    ({"prompts": ["a"], "completions": ["a"], "columns": {"answer": "a"}}, 422, "must be a list"),
    ({"prompts": ["a"], "completions": ["a"], "columns": {"prompts": ["a"]}}, 422, "name is taken"),
    ({"prompts": ["a"], "completions": ["a"], "statuses": ["done"]}, 422, "'done'"),
    ({"prompts": ["a"], "completions": ["a"], "group_ids": [True]}, 422, "group_ids[0]"),
    ({"prompts": ["a"], "completions": ["a"], "colums": {}}, 422, "did you mean columns"),
    ({"prompts": ["a"], "completions": ["a"], "functions": ["exact"]}, 422, "did you mean exact_match"),
    ({"prompts": ["a"] * 9, "completions": ["a"] * 9}, 413, "at most 8"),
    (b" " * 200_000, 413, "--max-body-mb"),
]


def test_client_faults_are_4xx_with_json(start_server: StartServer) -> None:
    server = start_server("--function", "exact_match", "--max-batch", "8", "--max-body-mb", "0.1", "--workers", "0")
    for body, status, words in BAD_REQUESTS:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = requests.post(server.url + "/v1/score", data=data, timeout=10)
        assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), answer.text
    for method, path, status in (("GET", "/v1/score", 405), ("POST", "/health", 405), ("GET", "/docs", 404)):
        answer = requests.request(method, server.url + path, timeout=10)
        assert (answer.status_code, path in answer.json()["error"]["message"]) == (status, True)
    surrogate = '{"prompts": [""], "completions": ["\\ud800"], "columns": {"answer": ["\\ud800"]}}'
    assert requests.post(server.url + "/v1/score", data=surrogate, timeout=10).json()["rewards"] == [1.0]
    assert server.client().info()["samples_scored"] == 1


def test_token(start_server: StartServer, user_file: UserFile) -> None:
    target = f"{user_file(SOURCE)}:env"
    server = start_server("--function", target, "--token-env", "MY_TOKEN", env={"MY_TOKEN": "s3cret"})
    assert server.client().health()
    for client in (server.client(), server.client("wrong"), server.client("s3cret\u00e9")):
        with pytest.raises(RewardError, match="token") as caught:
            client.info()
        assert caught.value.status == 401
    with pytest.raises(RewardError, match="401"):
        server.client().score([""], ["a"], {})
    assert server.client("s3cret").score([""], ["a"], {}).rewards == [0.0]  # hidden from user code


def test_small_requests_are_quick(start_server: StartServer) -> None:
    client = start_server("--function", "exact_match", "--workers", "0").client()
    began = time.monotonic()
    for _ in range(20):
        client.score([""], ["a"], {"answer": ["a"]})
    assert time.monotonic() - began < 0.6  # Nagle's algorithm makes it 0.9


def test_a_busy_function_does_not_stall_health(start_server: StartServer, user_file: UserFile) -> None:
    server = start_server("--function", f"{user_file(SOURCE)}:naps")
    rewards: list[Any] = []
    thread = threading.Thread(target=lambda: rewards.append(server.client().score([""], ["a"], {}).rewards))
    thread.start()
    time.sleep(0.3)
    began = time.monotonic()
    assert server.client().health()
    assert time.monotonic() - began < 0.5
    assert not rewards
    thread.join(10)
    assert rewards == [[1.0]]
