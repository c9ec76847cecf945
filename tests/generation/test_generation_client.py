"""The client against servers that misbehave: real HTTP, wrong answers."""

import http.server
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_llama
import torch
from safetensors import safe_open

from orchestrator.generation.client import GenerationClient, GenerationError, Sampling
from orchestrator.generation.transfer import SafetensorsSender, WeightSyncError, named_weights, write_weights

Answer = Callable[[str, dict[str, Any]], tuple[int, Any]]


class Liar(http.server.BaseHTTPRequestHandler):
    """Answers whatever the test wants."""

    protocol_version = "HTTP/1.1"
    answer: Answer
    log_message = lambda *_: None  # noqa: E731

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        status, body = type(self).answer(self.path, json.loads(self.rfile.read(length) or b"{}"))
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST  # noqa: N815


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], GenerationClient]]:
    servers = []

    def start(answer: Answer) -> GenerationClient:
        handler = type("Handler", (Liar,), {"answer": staticmethod(answer)})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return GenerationClient(f"http://127.0.0.1:{server.server_port}", timeout_s=0.5)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def choice(**changes: Any) -> dict[str, Any]:
    table = {"tokens": ["token_id:7", "token_id:1"], "token_logprobs": [-0.5, -1.0]}
    whole = {"index": 0, "token_ids": [7, 1], "prompt_token_ids": [5], "finish_reason": "stop", "logprobs": table}
    return {**whole, **changes}


def test_a_good_answer_is_read(serve: Any) -> None:
    ((completion,),) = serve(lambda *_: (200, {"choices": [choice()]})).complete([[5]], 1, Sampling(2), 0)
    assert (completion.token_ids, completion.logprobs, completion.finish_reason) == ([7, 1], [-0.5, -1.0], "stop")


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        ({"choices": []}, "asked for 1 completions, got 0"),
        ({"choices": [choice(), choice(index=1)]}, "got 2"),
        ({"choices": [choice(index=3)]}, "not numbered"),
        ({"choices": [choice(prompt_token_ids=[6])]}, "another prompt"),
        ({"choices": [choice(finish_reason="abort")]}, "'abort'"),
        ({"choices": [choice(token_ids=[7])]}, "other tokens"),
        ({"choices": [choice(logprobs=None)]}, "lacks"),
        ({"choices": [choice(finish_reason="length")]}, "was cut at 2 of 3 tokens"),
        ({"choices": [choice(logprobs={**choice()["logprobs"], "token_logprobs": [-0.5]})]}, "not as many"),
        ({"choices": [choice(logprobs={**choice()["logprobs"], "token_logprobs": [-0.5, None]})]}, "None"),
        ({"choices": [choice(logprobs={**choice()["logprobs"], "token_logprobs": [-0.5, float("nan")]})]}, "nan"),
        ([], "no list of choices"),
        (b"<html>", "not JSON"),
    ],
)
def test_wrong_answers_are_refused(serve: Any, reply: Any, sentence: str) -> None:
    with pytest.raises(GenerationError, match=sentence) as caught:
        serve(lambda *_: (200, reply)).complete([[5]], 1, Sampling(3), 0)
    assert caught.value.status == 200


def asking(bodies: list[dict[str, Any]], version: dict[str, str], refused: int = -1) -> Answer:
    """A server that writes down what it is asked for, and refuses one prompt."""

    def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/version":
            return 200, version
        bodies.append(body)
        if [refused] in body["prompt"]:
            return 400, {"error": {"message": "not this one"}}
        every = [prompt for prompt in body["prompt"] for _ in range(body["n"])]
        return 200, {"choices": [choice(index=i, prompt_token_ids=prompt) for i, prompt in enumerate(every)]}

    return answer


def test_a_server_that_draws_prompts_alike_is_asked_for_one_at_a_time(serve: Any) -> None:
    bodies: list[dict[str, Any]] = []
    client = serve(asking(bodies, {"version": "0.32.0"}))
    groups = client.complete([[5], [6], [5]], 2, Sampling(2), 7)
    assert [len(group) for group in groups] == [2, 2, 2]
    assert sorted(body["prompt"] for body in bodies) == [[[5]], [[5]], [[6]]]
    seeds = sorted(body["seed"] for body in bodies)
    # Choice i is drawn with seed + i.
    assert all(after - before > 10_000 for before, after in itertools.pairwise(seeds))
    client.complete([[5], [6], [5]], 2, Sampling(2), 7)
    assert sorted(body["seed"] for body in bodies[3:]) == seeds
    client.complete([[5], [6], [5]], 2, Sampling(2), 8)
    assert not {body["seed"] for body in bodies[6:]} & set(seeds)


def test_ours_gets_one_request(serve: Any) -> None:
    bodies: list[dict[str, Any]] = []
    serve(asking(bodies, {"version": "1", "engine": "orchestrate-embedded"})).complete([[5], [6]], 2, Sampling(2), 7)
    assert [(body["prompt"], body["seed"]) for body in bodies] == [([[5], [6]], 7)]


def test_one_refused_prompt_is_an_error(serve: Any) -> None:
    with pytest.raises(GenerationError, match="not this one"):
        serve(asking([], {"version": "0.32.0"}, refused=6)).complete([[5], [6]], 2, Sampling(2), 7)


def test_greedy_answers_are_asked_for_once(serve: Any) -> None:
    bodies: list[dict[str, Any]] = []
    groups = serve(asking(bodies, {"version": "0.32.0"})).complete([[5], [6]], 3, Sampling(2, 0.0), 7)
    assert [body["n"] for body in bodies] == [1]
    assert [[completion.token_ids for completion in group] for group in groups] == [[[7, 1]] * 3] * 2


@pytest.mark.parametrize("changes", [{"temperature": 0.001}, {"temperature": 2.5}, {"top_p": 0.0}])
def test_sampling_that_a_server_would_change_is_not_sent(serve: Any, changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        serve(lambda *_: (200, {})).complete([[5]], 1, Sampling(2, **changes), 7)  # type: ignore[arg-type]


def test_scores_must_cover_the_sequence(serve: Any) -> None:
    entries = [None, {"6": {"logprob": -1.5, "rank": 1}, "9": {"logprob": -2.0, "rank": 2}}]
    client = serve(lambda *_: (200, {"choices": [{"index": 0, "prompt_logprobs": entries}]}))
    assert client.score([[5, 6]]) == [[-1.5]]
    for sequence in ([5, 7], [5, 6, 7]):
        with pytest.raises(GenerationError, match="choice 0"):
            client.score([sequence])


@pytest.mark.parametrize(
    "body", [{"error": {"message": "too long"}}, {"error": "too long"}, {"detail": "too long"}, b"too long"]
)
def test_an_error_has_the_servers_words(serve: Any, body: Any) -> None:
    with pytest.raises(GenerationError) as caught:
        serve(lambda *_: (400, body)).resume()
    error = caught.value
    assert (error.method, error.status, error.message) == ("POST", 400, "too long")
    assert error.url.endswith("/resume")


def test_a_silent_server_costs_the_timeout_only(serve: Any) -> None:
    def slow(*_: Any) -> tuple[int, Any]:
        time.sleep(1.5)
        return 200, {}

    asked = time.monotonic()
    with pytest.raises(GenerationError, match=r"nothing within 0\.5 s"):
        serve(slow).complete([[5]], 1, Sampling(2), 0)
    assert time.monotonic() - asked < 1.4


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.generation.transport.RETRY_FOR_S", 0.5)
    asked = time.monotonic()
    with pytest.raises(GenerationError, match="no answer: connection refused"):
        GenerationClient("http://127.0.0.1:9").health()
    assert 0.2 < time.monotonic() - asked < 3
    with pytest.raises(ValueError, match="URL"):
        GenerationClient("127.0.0.1:9")


def test_a_proxy_does_not_stand_between(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert serve(lambda *_: (200, {"success": True})).reset_prefix_cache()


def test_unhealthy_is_an_answer(serve: Any) -> None:
    assert not serve(lambda *_: (503, b"")).health()


def test_the_client_needs_no_torch() -> None:
    program = "import sys, orchestrator.generation.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2]).returncode == 0


def test_a_weight_file_is_whole_and_holds_every_name(tmp_path: Path) -> None:
    model = tiny_llama.model()
    write_weights(named_weights(model), tmp_path / "w.safetensors", {"weight_version": "3"})
    with safe_open(str(tmp_path / "w.safetensors"), framework="pt") as file:
        assert file.metadata() == {"weight_version": "3"}
        assert torch.equal(file.get_tensor("lm_head.weight"), model.lm_head.weight)
        assert torch.equal(file.get_tensor("model.embed_tokens.weight"), model.lm_head.weight)
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def breaking() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", torch.zeros(2)
        raise RuntimeError("gather failed")

    with pytest.raises(RuntimeError, match="gather failed"):
        write_weights(breaking(), tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [(["old", "old"], "names version old"), (["v1", "v1"], "would prove nothing")],
)
def test_a_server_that_ignores_updates_is_found_out(
    serve: Any, tmp_path: Path, versions: list[str], sentence: str
) -> None:
    named = iter(versions)

    def answer(path: str, _: Any) -> tuple[int, Any]:
        return 200, {"weight_version": next(named)} if path == "/weight_info" else {}

    with pytest.raises(WeightSyncError, match=sentence):
        SafetensorsSender(serve(answer), tmp_path).send([("a", torch.zeros(1))], "v1")
    assert list(tmp_path.iterdir()) == []


def test_versions_are_file_names(serve: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weight version"):
        SafetensorsSender(serve(lambda *_: (200, {})), tmp_path).send([], "../x")
