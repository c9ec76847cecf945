"""Whose process answers: a stale server, a twin on the same port, a child that is gone."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from talking import differing, facts_of, recipe, record_child, reward_server, shake, skipped, vllm_shaped

from orchestrator.supervise.handshake import handshake, owner
from tests.orchestrated import read


def ours(port: int, kind: str = "vllm", **more: object) -> dict[str, object]:
    return {"kind": kind, "url": f"http://127.0.0.1:{port}", "port": port, **more}


def test_the_child_that_was_started_answers(tmp_path: Path, ports: list[int]) -> None:
    with vllm_shaped(ports[0]) as server:
        record_child(tmp_path, "generation", server.pid, ports[0])
        verdict, written = shake(recipe(ours(ports[0])), tmp_path)
        assert verdict.problem is None, verdict.problem
        owners = [fact for fact in written["facts"] if "who listens" in fact["name"]]
        assert [fact["agrees"] for fact in owners] == [True, True]
        assert owners[0]["pid"] == server.pid
        assert written["services"]["generation"]["log"] == str(tmp_path / "logs" / "generation.log")
        # By another name of the same address, and bound to every address.
        same = recipe(ours(ports[0]) | {"url": f"http://localhost:{ports[0]}"})
        assert shake(same, tmp_path)[0].problem is None


def test_a_stale_server_answers_in_place_of_the_child(tmp_path: Path, ports: list[int]) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        with vllm_shaped(ports[0]) as stale:
            record_child(tmp_path, "generation", child.pid, ports[0])
            verdict, written = shake(recipe(ours(ports[0])), tmp_path)
        assert differing(written) == [f"generation: who listens on port {ports[0]} (before the questions)"]
        assert len(written["facts"]) == 1, "what a stranger says is no answer"
        assert f"pid {stale.pid}: " in str(verdict.problem)
        assert "stale server" in str(verdict.problem)
        assert f"log: {tmp_path / 'logs' / 'generation.log'}" in str(verdict.problem)
    finally:
        child.kill()
        child.wait()


def test_a_child_that_is_gone_and_one_that_was_never_recorded(tmp_path: Path, ports: list[int]) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    record_child(tmp_path, "generation", gone.pid, ports[0])
    assert "says 'nobody'" in str(shake(recipe(ours(ports[0])), tmp_path)[0].problem)
    (tmp_path / "processes.json").unlink()
    assert "no record of having started it" in str(shake(recipe(ours(ports[0])), tmp_path)[0].problem)


def test_a_twin_that_was_there_before_the_questions(tmp_path: Path, ports: list[int]) -> None:
    with vllm_shaped(ports[0], "--reuse-port") as child, vllm_shaped(ports[0], "--reuse-port") as twin:
        record_child(tmp_path, "generation", child.pid, ports[0])
        verdict, written = shake(recipe(ours(ports[0])), tmp_path)
    assert differing(written) == [f"generation: who listens on port {ports[0]} (before the questions)"]
    assert f"pid {twin.pid}: " in str(verdict.problem)


TWIN = """
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(("0.0.0.0", int(sys.argv[1])))
s.listen()
print("ready", flush=True)
time.sleep(60)
"""


def test_a_twin_that_comes_while_the_questions_are_asked(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens on every address, where the child listens on loopback."""
    twins: list[subprocess.Popen[str]] = []
    is_ours = owner.is_ours

    def then_a_twin(*args: object) -> bool:
        found = is_ours(*args)  # type: ignore[arg-type]
        if not twins:
            twins.append(
                subprocess.Popen([sys.executable, "-c", TWIN, str(ports[0])], stdout=subprocess.PIPE, text=True)
            )
            assert twins[0].stdout is not None
            twins[0].stdout.readline()
        return found

    monkeypatch.setattr(owner, "is_ours", then_a_twin)
    try:
        with vllm_shaped(ports[0], "--reuse-port") as child:
            record_child(tmp_path, "generation", child.pid, ports[0])
            verdict, written = shake(recipe(ours(ports[0])), tmp_path)
        assert differing(written) == [f"generation: who listens on port {ports[0]} (after the questions)"]
        assert f"pid {twins[0].pid}: " in str(verdict.problem)
    finally:
        for twin in twins:
            twin.kill()
            twin.communicate()


def test_an_external_server_that_changes_hands(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell a restart from a second server by its answers: the process is what is compared."""
    looked = iter([(4_000_001,), (4_000_002,)])
    monkeypatch.setattr(owner, "listeners", lambda url: next(looked))
    with vllm_shaped(ports[0]):
        verdict, written = shake(recipe(ours(ports[0], "external")), tmp_path)
    assert differing(written) == ["generation: who listens (before and after the questions)"]
    assert "Some answers are one server's, some another's." in str(verdict.problem)


def test_a_server_of_another_machine_cannot_be_looked_at(tmp_path: Path) -> None:
    assert owner.listeners("http://192.0.2.1:8000") == ()
    with socket.create_server(("127.0.0.1", 0)) as mine:
        assert owner.listeners(f"http://127.0.0.1:{mine.getsockname()[1]}") == (), (
            "the orchestrator itself is no server"
        )


def test_the_reward_server_names_its_own_process(tmp_path: Path, ports: list[int]) -> None:
    """The pid that /info tells is the child's, and counts go by it."""
    with reward_server(ports[0], "--function", "accuracy") as child:
        record_child(tmp_path, "reward", child.pid, ports[0])
        run = recipe(reward=ours(ports[0], "local"))
        verdict = handshake(run, tmp_path, facts_of(run))
        assert verdict.problem is None, verdict.problem
        written = read(tmp_path / "handshake.json")
        assert written["services"]["reward"]["pid"] == child.pid
        assert written["services"]["reward"]["samples_scored"] == 1
        assert "reward: version" in skipped(written)


def test_questions_to_nobody_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that takes connections and never answers."""
    monkeypatch.setattr("orchestrator.supervise.handshake.generation.QUESTION_TIMEOUT_S", 1.0)
    monkeypatch.setattr("orchestrator.generation.client.FACT_TIMEOUT_S", 1.0)
    monkeypatch.setattr("orchestrator.supervise.handshake.reward.QUESTION_TIMEOUT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        began = time.monotonic()
        verdict, written = shake(recipe(ours(port, "external"), ours(port, "external")), tmp_path)
        assert time.monotonic() - began < 10
    assert differing(written) == ["reward: server", "generation: server"]
    assert str(verdict.problem).count("within 1 s") == 2
    assert os.getpid() not in [service["pid"] for service in written["services"].values()]
