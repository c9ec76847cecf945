"""What only the embedded server promises: strictness, starting and stopping, atomic updates, a frozen batch."""

import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import expected
import pytest
import requests
import tiny_llama
import torch
from generation_servers import ROOT, Target, start_embedded, stop
from safetensors.torch import save_file

from orchestrator.generation import server
from orchestrator.generation.client import GenerationClient, GenerationError, Sampling
from orchestrator.generation.transfer import named_weights, write_weights

MODULE = ("-P", "-m", "orchestrator.generation.server")


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server of an untied model with few rows per batch, so that large requests are cut."""
    folder = tmp_path_factory.mktemp("untied")
    (folder / "weights").mkdir()
    model = tiny_llama.write(folder / "model", tie_word_embeddings=False, max_position_embeddings=1024)
    running = start_embedded(model, folder / "weights", "--max-batch-rows", "3")
    yield running
    stop(running)


def ask(target: Target, body: Any, path: str = "/v1/completions") -> requests.Response:
    return requests.post(target.base_url + path, json=body, timeout=30)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": [5], "temprature": 1}, "temprature"),
        ({"prompt": [5], "stream": True}, "stream"),
        ({"prompt": [5], "stop": ["x"]}, "stop"),
        ({"prompt": [5], "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"prompt": [5], "presence_penalty": 0.5}, "presence_penalty"),
        ({"prompt": [5] * 60, "max_tokens": 5}, "max_tokens"),
        ({"prompt": [5], "max_tokens": 0}, "max_tokens"),
        ({"prompt": [5], "n": 200000}, "n"),
        ({"prompt": [5], "seed": 2**63}, "seed"),
        ({"prompt": [5], "seed": 0.5}, "seed"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [5], "stop_token_ids": "ab"}, "stop_token_ids"),
    ],
)
def test_nothing_is_ignored_silently(target: Target, body: dict[str, Any], field: str) -> None:
    response = ask(target, body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, field)


def test_neutral_values_are_accepted(target: Target) -> None:
    neutral = {"stream": False, "user": "me", "structured_outputs": None, "frequency_penalty": 0.0, "stop": []}
    assert ask(target, {"prompt": [5], "max_tokens": 1, **neutral}).status_code == 200


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/v1/completions", b"{"),
        ("/v1/completions", b"[]"),
        ("/v1/completions", b'{"prompt": [5], "temperature": NaN}'),
        ("/v1/completions", b'{"prompt": "\\ud800"}'),
        ("/v1/completions", b'{"prompt": [5], "model": "\\ud800"}'),
        ("/v1/completions", b'{"prompt": ' + b"[" * 100_000),
        ("/v1/chat/completions", b'{"messages": []}'),
        ("/v1/chat/completions", b'{"messages": [{"content": 3}]}'),
        ("/v1/chat/completions", b'{"messages": [{"role": "user"}]}'),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": [{"type": "image"}]}]}'),
        ("/v1/chat/completions", b'{"messages": [{"role":"a","content":"b"}], "chat_template_kwargs": {"tokenize":1}}'),
        ("/tokenize", b"{}"),
        ("/tokenize", b'{"prompt": 3}'),
        ("/update_weights", b'{"update_info": {"path": "a\\u0000b"}}'),
        ("/update_weights", b'{"update_info": 3}'),
        ("/init_weight_transfer_engine", b'{"init_info": {"folder": "/"}}'),
        ("/init_weight_transfer_engine", b'{"init_info": {"colour": "red"}}'),
        ("/pause?mode=never", b""),
        ("/nowhere", b""),
    ],
)
def test_bad_input_is_never_a_server_error(target: Target, path: str, content: bytes) -> None:
    response = requests.post(
        target.base_url + path, data=content, headers={"Content-Type": "application/json"}, timeout=30
    )
    assert 400 <= response.status_code < 500
    assert response.json()["error"]["message"]


def test_facts_of_our_own(target: Target, client: GenerationClient) -> None:
    assert client.version()["engine"] == "orchestrate-embedded"
    assert client.server_info()["model_config"]["vocab_size"] == 64
    before = requests.get(target.base_url + "/stats", timeout=5).json()
    assert (before["pid"], before["run_id"]) == (target.process.pid, "run-7")
    client.complete([[5, 6]], 3, Sampling(2), seed=0)
    after = requests.get(target.base_url + "/stats", timeout=5).json()
    assert after["sequences"] == before["sequences"] + 3
    assert after["requests"] == before["requests"] + 1


def test_requests_without_a_seed_differ(client: GenerationClient) -> None:
    asked = [client.complete([[5, 6]], 2, Sampling(8), seed=None) for _ in range(2)]
    assert asked[0] != asked[1]


def test_a_request_larger_than_a_batch(untied: Target, client: GenerationClient) -> None:
    few = GenerationClient(untied.base_url).complete([[5, 6], [7]], 8, Sampling(3), seed=4)
    assert [len(group) for group in few] == [8, 8]
    assert len({tuple(c.token_ids) for c in few[0]}) > 1
    # The random streams belong to prompt and choice, so cutting the request into batches changes nothing.
    again = [GenerationClient(untied.base_url).complete([[5, 6], [7]], n, Sampling(3), seed=4) for n in (2, 8)]
    assert [c.token_ids for c in again[0][1]] == [c.token_ids for c in few[1][:2]]
    assert again[1] == few


def refused(target: Target, tensors: dict[str, torch.Tensor]) -> str:
    """The server's words when it is sent these tensors."""
    path = target.weights_dir / "try.safetensors"
    save_file(tensors, path)
    with pytest.raises(GenerationError) as caught:
        GenerationClient(target.base_url).update_weights({"path": path.name}, "try")
    assert caught.value.status == 400
    path.unlink()
    return caught.value.message


def tensors_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in named_weights(model)}


def test_a_file_must_fit_as_a_whole(untied: Target) -> None:
    shape = {"tie_word_embeddings": False, "max_position_embeddings": 1024}
    served, new = tiny_llama.model(**shape), tensors_of(tiny_llama.model(seed=3, **shape))
    client = GenerationClient(untied.base_url)
    head, norm = new["lm_head.weight"], new["model.norm.weight"]

    assert "lm_head.weight is missing" in refused(untied, {k: v for k, v in new.items() if k != "lm_head.weight"})
    assert "extra is not a tensor of the model" in refused(untied, {**new, "extra": norm.clone()})
    message = refused(untied, {**new, "lm_head.weight": head[:10].contiguous()})
    assert "[10, 64]" in message
    assert "[64, 64]" in message
    assert "NaN" in refused(untied, {**new, "model.norm.weight": norm * torch.nan})
    assert "dtype" in refused(untied, {**new, "model.norm.weight": norm.int()})
    (untied.weights_dir / "junk.safetensors").write_bytes(b"junk")
    with pytest.raises(GenerationError, match="not a readable safetensors"):
        client.update_weights({"path": "junk.safetensors"}, "junk")

    assert client.weight_info() == {"weight_version": "default", "weight_syncs": 0}
    assert client.score([[5, 6, 7]])[0] == pytest.approx(expected.sequence_logprobs(served, [5, 6, 7]), abs=1e-5)
    write_weights(((k, v.bfloat16()) for k, v in new.items()), untied.weights_dir / "w.safetensors")
    client.update_weights({"path": "w.safetensors"}, "half")
    rounded = tiny_llama.model(seed=3, **shape)
    for parameter in rounded.parameters():
        parameter.data = parameter.data.bfloat16().float()
    assert client.score([[5, 6, 7]])[0] == pytest.approx(expected.sequence_logprobs(rounded, [5, 6, 7]), abs=1e-5)


def test_tied_weights_must_agree(target: Target, client: GenerationClient) -> None:
    tensors = tensors_of(tiny_llama.model())
    assert "ties them" in refused(target, {**tensors, "lm_head.weight": tensors["lm_head.weight"] + 1})
    del tensors["lm_head.weight"]
    write_weights(tensors.items(), target.weights_dir / "w.safetensors")
    client.update_weights({"path": "w.safetensors"}, "without-head")
    (target.weights_dir / "w.safetensors").unlink()


def test_a_folder_outside_is_forbidden(client: GenerationClient, tmp_path: Path) -> None:
    with pytest.raises(GenerationError) as caught:
        client.init_weight_transfer({"folder": str(tmp_path)})
    assert caught.value.status == 403


def test_a_frozen_batch_goes_on_with_the_new_weights(untied: Target) -> None:
    client, model = (
        GenerationClient(untied.base_url),
        tiny_llama.model(seed=9, tie_word_embeddings=False, max_position_embeddings=1024),
    )
    settings = Sampling(900)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(
            lambda: ask(untied, {"prompt": [5, 6], "max_tokens": 900, "ignore_eos": True, "logprobs": 0, "n": 2,
                                 "seed": 1, "return_token_ids": True}).json()["choices"]
        )  # fmt: skip
        time.sleep(0.4)
        client.pause("keep")
        assert not under_way.done()
        write_weights(named_weights(model), untied.weights_dir / "w.safetensors")
        client.update_weights({"path": "w.safetensors"}, "in-flight")
        client.resume()
        choices = under_way.result(timeout=60)
    for choice in choices:
        ids, got = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        assert len(ids) == 900
        # The last tokens are the new policy's, and so is the cache under them.
        assert got[-50:] == pytest.approx(expected.completion_logprobs(model, [5, 6], ids, settings)[-50:], abs=1e-3)


def test_abort_ends_what_is_under_way(untied: Target) -> None:
    client = GenerationClient(untied.base_url)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = {"prompt": [5, 6], "max_tokens": 1000, "ignore_eos": True, "return_token_ids": True}
        under_way = pool.submit(ask, untied, body)
        time.sleep(0.3)
        client.pause("abort")
        (choice,) = under_way.result(timeout=5).json()["choices"]
        client.resume()
    assert choice["finish_reason"] == "abort"
    assert len(choice["token_ids"]) < 1000


STARTUP_ERRORS = {
    "is not a folder": ("--model", "/nonexistent"),
    "cannot load": ("--model", "EMPTY"),
    "exceeds the model's max_position_embeddings 64": ("--model", "MODEL", "--max-model-len", "65"),
    "--max-batch-rows must be at least 1": ("--model", "MODEL", "--max-batch-rows", "0"),
    "--weights-dir /nonexistent is not a folder": ("--model", "MODEL", "--weights-dir", "/nonexistent"),
    "--port 99999 is no TCP port": ("--model", "MODEL", "--port", "99999"),
}


@pytest.mark.parametrize("sentence", STARTUP_ERRORS)
def test_startup_errors_are_one_line(
    sentence: str, model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {"MODEL": str(model_path), "EMPTY": str(tmp_path)}
    argv = [folders.get(word, word) for word in STARTUP_ERRORS[sentence]]
    assert server.main(["--port", "0", *argv]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line


def test_a_taken_port_ends_the_process(model_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        argv = [sys.executable, *MODULE, "--model", str(model_path), "--port", str(taken.getsockname()[1])]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 3
    assert len(ended.stderr.splitlines()) == 1
    assert "cannot listen" in ended.stderr


@pytest.mark.parametrize("busy", [False, True])
def test_sigterm_stops_within_about_a_second(model_path: Path, tmp_path: Path, busy: bool) -> None:
    running = start_embedded(model_path, tmp_path)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        if busy:
            GenerationClient(running.base_url).pause("wait")
            pool.submit(ask, running, {"prompt": [5], "max_tokens": 50})
            time.sleep(0.2)
        asked = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(5) in (0, -signal.SIGTERM)
        assert time.monotonic() - asked < 2.0
