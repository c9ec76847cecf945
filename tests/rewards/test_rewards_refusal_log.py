"""What the server's log says of refused requests: clients of other systems show their users the status alone."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from reward_server import RunningServer, launch

ODD_GOLD = {"query": ["Q: 1+1? \\boxed{2}"], "prompts": ["Q: 1+1?"], "labels": ["\\text{}"]}


def asked_with(folder: Path, *flags: str) -> Iterator[RunningServer]:
    server = launch("--function", "accuracy", *flags, cwd=folder)
    try:
        server.wait_ready()
        yield server
    finally:
        server.end()


@pytest.fixture
def discreet(tmp_path: Path) -> Iterator[RunningServer]:
    yield from asked_with(tmp_path)


@pytest.fixture
def talkative(tmp_path: Path) -> Iterator[RunningServer]:
    yield from asked_with(tmp_path, "--log-samples")


def refusals(server: RunningServer, count: int) -> list[str]:
    deadline = time.monotonic() + 5
    while True:
        lines = [line for line in server.stderr if "refused" in line]
        if len(lines) >= count or time.monotonic() > deadline:
            return lines
        time.sleep(0.02)


def test_a_refusal_is_logged_without_the_texts(discreet: RunningServer) -> None:
    status = requests.post(discreet.url + "/get_reward", json=ODD_GOLD, timeout=10).status_code
    (line,) = refusals(discreet, 1)
    assert f"openrlhf request refused with {status}: accuracy, sample 0: exception" in line
    assert "text{}" not in line


def test_the_words_are_logged_where_texts_may_be(talkative: RunningServer) -> None:
    requests.post(talkative.url + "/get_reward", json=ODD_GOLD, timeout=10)
    (line,) = refusals(talkative, 1)
    assert "text{}" in line


def test_many_refusals_are_counted_not_listed(discreet: RunningServer) -> None:
    began = time.monotonic()
    for _ in range(20):
        requests.post(discreet.url + "/remote_rm", json={}, timeout=10)
    seconds = time.monotonic() - began
    assert 1 <= len(refusals(discreet, 1)) <= 1 + seconds
    time.sleep(1.1)
    requests.post(discreet.url + "/remote_rm", json={}, timeout=10)
    said = [int(line.rpartition("(")[2].split()[0]) for line in refusals(discreet, 2) if "more since" in line]
    assert sum(said) + len(refusals(discreet, 2)) == 21
