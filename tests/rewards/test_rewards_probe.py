"""`reward probe` against our server and against servers that behave, and fail, as other systems' do."""

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign_servers import Handle, Request, align_anything, hangs, one_after_another, openrlhf, remote_rm, serving
from reward_server import StartServer

from rewards.commands import main

pytestmark = pytest.mark.faults

Probe = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def probe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Probe:
    """(exit code, report) for a server, or for an address. A proxy that nobody reaches must not be asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    def run(server: Handle | str, *flags: str, path: str = "") -> tuple[int, dict[str, Any]]:
        if isinstance(server, str):
            code = main(["probe", server + path, "--timeout-s", "5", *flags, "--json"])
        else:
            with serving(server) as url:
                code = main(["probe", url + path, "--timeout-s", "5", *flags, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def said(report: dict[str, Any], level: str, about: str = "") -> list[str]:
    return [p["message"] for p in report["proofs"] if p["level"] == level and about in p["about"]]


def dialects(report: dict[str, Any]) -> list[str]:
    return [one["dialect"] for one in report["honoured"]]


def test_our_server_honours_every_dialect_it_can(probe: Probe, start_server: StartServer) -> None:
    url = start_server("--function", "exact_match", "--workers", "0").url
    code, report = probe(url)
    assert (code, said(report, "error"), said(report, "warning")) == (0, [], [])
    assert dialects(report) == ["native", "openrlhf", "vime"]
    assert any("--gold" in words for words in said(report, "note", "align_anything"))  # it has no gold file
    code, report = probe(url, "--dialect", "openrlhf", path="/get_reward")
    assert (code, dialects(report)) == (0, ["openrlhf"])
    pairs = {pair["right"]: pair["scores"] for pair in report["honoured"][0]["pairs"]}
    assert (pairs["2"], pairs["\\boxed{2}"]) == ([1.0, 0.0, 1.0], [0.0, 0.0, 0.0])


def test_our_server_with_a_gold_file(probe: Probe, start_server: StartServer, tmp_path: Path) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text('{"question": "What is 1+1?", "answer": "2"}\n')
    server = start_server("--function", "exact_match", "--workers", "0", "--gold", str(gold))
    code, report = probe(server.url, "--dialect", "align_anything")
    assert (code, dialects(report), said(report, "warning")) == (0, ["align_anything"], [])
    assert any("an unknown prompt gets no score" in words for words in said(report, "ok"))


def test_our_server_with_a_token(probe: Probe, start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start_server(
        "--function", "exact_match", "--workers", "0", "--token-env", "TOKEN", env={"TOKEN": "s3cret"}
    )
    code, report = probe(server.url, "--dialect", "native")
    assert code == 2
    assert "--token-env" in next(p["fix"] for p in report["proofs"] if p["level"] == "error")
    monkeypatch.setenv("TOKEN", "s3cret")
    code, report = probe(server.url, "--dialect", "native", "--token-env", "TOKEN")
    assert (code, said(report, "error")) == (0, [])
    assert "a request without the token is refused" in said(report, "ok")


def test_a_server_like_align_anythings(probe: Probe) -> None:
    code, report = probe(align_anything(), path="/get_reward")
    assert (code, dialects(report), said(report, "error")) == (0, ["align_anything"], [])
    warnings = said(report, "warning")
    for words in (
        "no health route",
        "malformed JSON is answered with 500: every client retries it",
        "content type text/plain is answered with 500",
        "null in a list is answered with 500",
        "texts instead of lists is answered with 200 and a score: every character was scored as a sample",
        "an unknown prompt got a score (1.5): golds are matched without a threshold",
    ):
        assert any(words in warning for warning in warnings), (words, warnings)
    assert "lists of different lengths 400" in "".join(said(report, "ok"))
    assert "right 1.5, wrong 0.5" in said(report, "ok")[0]


def test_a_server_without_its_data_set(probe: Probe) -> None:
    code, report = probe(align_anything(dataset=False))
    (found,) = [p for p in report["proofs"] if p["level"] == "error" and "align_anything" in p["about"]]
    assert (code, dialects(report)) == (2, [])
    assert "500 None; its client asks 3 times, then the run ends" in found["message"]
    assert "--dataset" in found["fix"]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (align_anything(lambda r, g: 1.5), "every completion gets 1.5, right or wrong: the reward is constant"),
        (align_anything(lambda r, g: 0.5 + ("think" in r)), "wrong and right get the same score in every form"),
        (align_anything(lambda r, g: float(g not in r)), "the wrong answer gets more (1) than the right one (0)"),
        (align_anything(lambda r, g: int(g in r)), "the rewards are integers"),
        (align_anything(lambda r, g: float("nan")), "nan for sample 0 instead of a finite number"),
        (align_anything(lambda r, g: [float(g in r)]), "[1.0] for sample 0 instead of a finite number"),
        (align_anything(lambda r, g: None), "None for sample 0 instead of a finite number"),
        (align_anything(spoil=lambda rewards: rewards[:-1]), "0 entries for 1 samples"),
        (align_anything(spoil=lambda rewards: [*rewards, 0.5]), "2 entries for 1 samples"),
        (align_anything(spoil=sorted), "the scores follow the place in the batch, not the completion"),
        (align_anything(spoil=lambda rewards: rewards[::-1]), "the scores follow the place in the batch"),
    ],
)
def test_what_ruins_a_training(probe: Probe, server: Handle, words: str) -> None:
    code, report = probe(server, "--dialect", "align_anything")
    errors = said(report, "error")
    assert (code, any(words in error for error in errors)) == (2, True), errors


def test_a_server_like_openrlhfs(probe: Probe) -> None:
    code, report = probe(openrlhf)
    assert (code, dialects(report), said(report, "error")) == (0, ["openrlhf"], [])
    warnings = said(report, "warning", "openrlhf")
    assert any("a missing field is answered with 500" in warning for warning in warnings)
    assert any("lists of different lengths is answered with 200 and a score" in warning for warning in warnings)
    assert said(report, "note", "align_anything at") == ["not spoken: 500 Internal Server Error"]


def test_a_remote_rm_server_at_the_address_as_given(probe: Probe) -> None:
    code, report = probe(remote_rm, path="/")
    assert (code, dialects(report)) == (0, ["vime"])
    assert report["honoured"][0]["url"].endswith("/")
    warnings = said(report, "warning", "vime")
    assert any("null as completion is answered with 200 and a score" in warning for warning in warnings)
    assert any("malformed JSON 400" in fine for fine in said(report, "ok"))


def test_a_dict_from_a_remote_rm_server(probe: Probe) -> None:
    def dicts(request: Request) -> tuple[int, bytes]:
        status, body = remote_rm(request)
        return status, b'{"pred": "2", "score": %s}' % body if status == 200 else body

    code, report = probe(dicts, path="/")
    assert (code, dialects(report)) == (0, ["vime"])
    assert probe(lambda request: (200, b'{"error": "no label"}'), "--dialect", "vime")[0] == 2


def test_a_pair_of_ones_own(probe: Probe) -> None:
    code, report = probe(align_anything(lambda r, g: float(r == "half")), "--right", "half", "--wrong", "third")
    assert (code, len(report["honoured"][0]["pairs"])) == (0, 1)
    code, report = probe(openrlhf, "--prompt", "6*7?", "--gold", "42")
    assert report["honoured"][0]["pairs"][0]["wrong"] == "\\boxed{43}"
    for flags in (["--right", "half"], ["--prompt", "6*7?"], ["--dialect", "slime"], ["--token-env", "UNSET_TOKEN"]):
        assert main(["probe", "http://127.0.0.1:1", *flags]) == 64
    assert main(["probe", "127.0.0.1:8008"]) == 64


def test_noise_and_what_requests_do_to_each_other(probe: Probe) -> None:
    calls: list[int] = []
    noisy = align_anything(lambda r, g: calls.append(1) or len(calls) / 1e3)
    assert any("the same completion got" in words for words in said(probe(noisy)[1], "warning"))
    slow = one_after_another(align_anything(), 0.06)
    _, report = probe(slow, "--dialect", "align_anything", "--right", "<answer>\\boxed{2}", "--wrong", "3")
    assert any("one after another" in words for words in said(report, "note"))


def test_a_server_that_a_malformed_request_breaks(probe: Probe) -> None:
    broken: list[int] = []
    sound = align_anything()

    def breaks(request: Request) -> tuple[int, bytes | None]:
        if broken:
            return 500, b"broken"
        if request.method == "POST" and request.body.endswith(b'"'):
            broken.append(1)
        return sound(request)

    code, report = probe(breaks, "--dialect", "align_anything")
    assert (code, any("after the malformed requests a valid one fails" in e for e in said(report, "error"))) == (
        2,
        True,
    )


def test_nobody_there(probe: Probe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, report = probe(f"http://127.0.0.1:{port}")
    assert (code, "refused" in said(report, "error")[0]) == (3, True)


@pytest.mark.parametrize("drip", [False, True])
def test_a_server_that_hangs_costs_little_time(probe: Probe, drip: bool) -> None:
    begun = time.monotonic()
    if drip:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=_drip, args=(listener,), daemon=True).start()
            code, report = probe(f"http://127.0.0.1:{listener.getsockname()[1]}", "--timeout-s", "0.4")
    else:
        code, report = probe(hangs, "--timeout-s", "0.4")
    assert time.monotonic() - begun < 4
    assert (code, "within 0.4 s" in said(report, "error")[0]) == (3, True)


def _drip(listener: socket.socket) -> None:
    """Answers every connection with a head that never ends, a byte at a time."""
    open_ones: list[socket.socket] = []
    listener.settimeout(0.05)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            open_ones.append(listener.accept()[0])
        except TimeoutError:
            pass
        except OSError:
            break
        for connection in open_ones:
            try:
                connection.send(b"H")
            except OSError:
                continue


def test_a_route_that_hangs_beside_one_that_works(probe: Probe) -> None:
    sound = align_anything()
    half = lambda request: hangs(request) if request.path == "/remote_rm" else sound(request)  # noqa: E731
    code, report = probe(half, "--timeout-s", "0.5")
    assert dialects(report) == ["align_anything"]
    assert (code, any("within 0.5 s" in error for error in said(report, "error", "vime"))) == (2, True)


def test_text_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(align_anything()) as url:
        assert main(["probe", url]) == 0
    out = capsys.readouterr().out
    assert f"align_anything at {url}/get_reward" in out
    assert "right completion" in out
    assert "honoured: align_anything; 0 errors" in out
