"""What every generation server must do, ours or vLLM: nothing here knows which one answers."""

import concurrent.futures
from pathlib import Path
from typing import Any

import expected
import pytest
import requests
import tiny_llama
import torch
from generation_servers import Target
from trl.generation.vllm_client import parse_logprobs

from orchestrator.generation.client import GenerationClient, GenerationError, Sampling
from orchestrator.generation.transfer import SafetensorsSender, WeightSyncError, named_weights, write_weights

# vLLM's share runs in `make test-vllm`.
SERVERS = ("embedded", pytest.param("vllm", marks=pytest.mark.vllm))
EOS = 1
# Different lengths, so that padding must be right.
PROMPTS = [[5, 6, 7], [9, 10, 11, 12, 13, 14, 15], [20], [33, 4, 33, 4, 33]]
FREE = Sampling(max_tokens=6)

SETTINGS = {
    "plain": FREE,
    "temperature": Sampling(6, temperature=0.6),
    "top_k": Sampling(6, top_k=5),
    "top_p": Sampling(6, top_p=0.7),
    "min_p": Sampling(6, min_p=0.1),
    "penalty": Sampling(6, repetition_penalty=1.7),
    "all": Sampling(6, temperature=1.3, top_k=12, top_p=0.9, min_p=0.02, repetition_penalty=1.2),
    "greedy": Sampling(6, temperature=0.0),
    "greedy penalised": Sampling(6, temperature=0.0, top_k=3, repetition_penalty=1.5),
}


def post(target: Target, path: str, body: Any) -> requests.Response:
    return requests.post(target.base_url + path, json=body, timeout=30)


def error_of(response: requests.Response) -> dict[str, Any]:
    error = response.json()["error"]
    assert set(error) >= {"message", "type", "code"}
    assert error["code"] == response.status_code
    return dict(error)


def test_facts(client: GenerationClient, target: Target) -> None:
    assert client.health()
    (card,) = client.models()
    assert (card["id"], card["max_model_len"], card["root"]) == ("tiny", 64, str(target.model_path))
    info = client.server_info()
    assert info["model_config"]["max_model_len"] == 64
    assert info["model_config"]["dtype"] == "torch.float32"
    assert info["model_config"]["logprobs_mode"] == "processed_logprobs"
    assert info["weight_transfer_config"]["backend"] == "safetensors"
    assert info["parallel_config"]["world_size"] == 1
    assert client.world_size() == 1
    assert client.reset_prefix_cache()


def test_shapes(client: GenerationClient) -> None:
    groups = client.complete(PROMPTS, 3, FREE, seed=1)
    assert [len(group) for group in groups] == [3] * len(PROMPTS)
    for completion in (completion for group in groups for completion in group):
        assert 1 <= len(completion.token_ids) <= 6
        assert len(completion.logprobs) == len(completion.token_ids)
        ended = completion.token_ids[-1] == EOS
        assert completion.finish_reason == ("stop" if ended else "length")
        assert EOS not in completion.token_ids[:-1]


@pytest.mark.parametrize("name", SETTINGS)
def test_logprobs_are_those_of_the_distribution_drawn_from(client: GenerationClient, reference: Any, name: str) -> None:
    for prompt, group in zip(PROMPTS, client.complete(PROMPTS, 4, SETTINGS[name], seed=3), strict=True):
        for completion in group:
            wanted = expected.completion_logprobs(reference, prompt, completion.token_ids, SETTINGS[name])
            assert completion.logprobs == pytest.approx(wanted, abs=1e-4)


def test_greedy_is_argmax(client: GenerationClient, reference: Any) -> None:
    for prompt, (completion,) in zip(PROMPTS, client.complete(PROMPTS, 1, Sampling(8, 0.0), seed=None), strict=True):
        assert completion.token_ids == expected.greedy(reference, prompt, 8, EOS)


def test_scores_equal_a_forward(client: GenerationClient, reference: Any) -> None:
    sequences = [*PROMPTS, list(range(4, 60))]
    for sequence, scores in zip(sequences, client.score(sequences), strict=True):
        assert scores == pytest.approx(expected.sequence_logprobs(reference, sequence), abs=1e-4)


def test_a_seed_repeats_and_rows_differ(client: GenerationClient) -> None:
    first = client.complete(PROMPTS, 4, FREE, seed=11)
    assert client.complete(PROMPTS, 4, FREE, seed=11) == first
    assert client.complete(PROMPTS, 4, FREE, seed=999) != first
    for group in first:
        assert len({tuple(completion.token_ids) for completion in group}) > 1


def test_a_choice_does_not_depend_on_how_many_there_are(client: GenerationClient) -> None:
    eight = client.complete(PROMPTS, 8, FREE, seed=21)
    assert [group[:2] for group in eight] == client.complete(PROMPTS, 2, FREE, seed=21)


def test_equal_prompts_get_completions_of_their_own(client: GenerationClient, target: Target) -> None:
    groups = client.complete([PROMPTS[0]] * 4, 1, FREE, seed=5)
    assert len({tuple(completion.token_ids) for (completion,) in groups}) > 1
    assert client.complete([PROMPTS[0]] * 4, 1, FREE, seed=5) == groups
    body = {"prompt": [PROMPTS[0]] * 4, "max_tokens": 6, "temperature": 1.0, "seed": 5, "return_token_ids": True}
    choices = post(target, "/v1/completions", body).json()["choices"]
    assert (len({tuple(one["token_ids"]) for one in choices}) == 1) is target.traits.one_noise_for_all_prompts


def test_greedy_answers_are_copied(client: GenerationClient, target: Target) -> None:
    ((first, *others),) = client.complete([PROMPTS[0]], 3, Sampling(6, 0.0), seed=1)
    assert others == [first, first]
    body = {"prompt": PROMPTS[0], "max_tokens": 6, "temperature": 0.0, "n": 3}
    assert (post(target, "/v1/completions", body).status_code == 200) is target.traits.repeats_greedy


def test_temperatures_close_to_zero(client: GenerationClient, target: Target) -> None:
    with pytest.raises(ValueError, match=r"0 \(greedy\) or 0\.01 to 2"):
        client.complete([PROMPTS[0]], 1, Sampling(6, 0.005), seed=1)
    body = {"prompt": PROMPTS[0], "max_tokens": 1, "temperature": 0.005}
    refused = post(target, "/v1/completions", body).status_code == 400
    assert refused is not target.traits.raises_temperature


def test_eight_clients_at_once_get_what_they_get_alone(target: Target) -> None:
    def ask(seed: int) -> list[list[list[int]]]:
        own = GenerationClient(target.base_url, timeout_s=30)
        settings = Sampling(4 + seed % 4, temperature=1.0 + 0.1 * seed, top_k=seed)
        return [[c.token_ids for c in group] for group in own.complete(PROMPTS[seed % 4 :], 3, settings, seed=seed)]

    alone = [ask(seed) for seed in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(ask, range(8))) == alone


def test_stop_token_ids(client: GenerationClient) -> None:
    (plain,) = client.complete([PROMPTS[0]], 1, Sampling(8, 0.0), seed=None)[0]
    stop_id = plain.token_ids[2]
    (stopped,) = client.complete([PROMPTS[0]], 1, Sampling(8, 0.0, stop_token_ids=(stop_id,)), seed=None)[0]
    assert stopped.token_ids == plain.token_ids[: plain.token_ids.index(stop_id) + 1]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop_id)


@pytest.mark.parametrize("body", [{"prompt": [5] * 65, "max_tokens": 1}, {"prompt": [5, 6], "max_tokens": 65}])
def test_what_does_not_fit_is_refused(target: Target, body: dict[str, Any]) -> None:
    error = error_of(post(target, "/v1/completions", body))
    assert error["code"] == 400
    assert "64" in error["message"]


def test_a_completion_that_the_context_would_cut(client: GenerationClient, target: Target) -> None:
    """60 tokens of prompt and 8 more are each within the 64, together they are not."""
    with pytest.raises(GenerationError, match="context"):
        client.complete([[33, 4] * 30], 1, Sampling(8), seed=1)
    body = {"prompt": [33, 4] * 30, "max_tokens": 8, "seed": 1, "temperature": 1.0, "return_token_ids": True}
    response = post(target, "/v1/completions", body)
    assert (response.status_code == 200) is target.traits.clamps
    if target.traits.clamps:
        assert len(response.json()["choices"][0]["token_ids"]) == 4


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"prompt": [5], "model": "another"}, 404),
        ({"prompt": [5, 64]}, 400),
        ({"prompt": [5, -1]}, 400),
        ({"prompt": []}, 400),
        ({"max_tokens": 3}, 400),
        ({"prompt": [5], "temperature": -1}, 400),
        ({"prompt": [5], "temperature": 2.1}, 400),
        ({"prompt": [5], "top_p": 0}, 400),
        ({"prompt": [5], "min_p": 2}, 400),
        ({"prompt": [5], "n": 0}, 400),
        ({"prompt": [5], "repetition_penalty": 0}, 400),
        ({"prompt": [5], "logprobs": -2}, 400),
        ({"prompt": {"a": 1}}, 400),
    ],
)
def test_bad_requests_are_the_callers_fault(target: Target, body: dict[str, Any], status: int) -> None:
    assert error_of(post(target, "/v1/completions", body))["code"] == status


def test_likeliest_tokens(target: Target, reference: Any) -> None:
    body = {"prompt": PROMPTS[:2], "max_tokens": 3, "logprobs": 4, "seed": 5, "return_token_ids": True}
    body |= {"n": 2, "return_tokens_as_token_ids": True, "prompt_logprobs": 2}
    choices = post(target, "/v1/completions", body).json()["choices"]
    for choice in choices:
        prompt, table = choice["prompt_token_ids"], choice["logprobs"]
        logits = expected.logits_of(reference, [*prompt, *choice["token_ids"]])
        for place, (token, top) in enumerate(zip(choice["token_ids"], table["top_logprobs"], strict=True)):
            row = expected.log_softmax(logits[len(prompt) + place - 1])
            likeliest = {f"token_id:{i}" for i in row.argsort()[-4:]}
            assert set(top) == likeliest | {f"token_id:{token}"}
            assert all(value == pytest.approx(row[int(key[9:])], abs=1e-4) for key, value in top.items())
        assert choice["prompt_logprobs"][0] is None
        for place, entries in enumerate(choice["prompt_logprobs"][1:], 1):
            row = expected.log_softmax(logits[place - 1])
            assert set(entries) == {str(prompt[place]), *map(str, row.argsort()[-2:])}
            for key, entry in entries.items():
                assert entry["logprob"] == pytest.approx(row[int(key)], abs=1e-4)
                assert entry["rank"] == 1 + int((row > row[int(key)]).sum())
                assert isinstance(entry["decoded_token"], str)


def test_trl_reads_our_replies(target: Target) -> None:
    body = {
        "model": "tiny", "prompt": PROMPTS, "n": 2, "repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0,
        "top_k": 0, "min_p": 0.0, "max_tokens": 5, "logprobs": 0, "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }  # fmt: skip
    choices = post(target, "/v1/completions", body).json()["choices"]
    assert [choice["prompt_token_ids"] for choice in choices[::2]] == PROMPTS
    logprobs, token_ids = parse_logprobs([choice["logprobs"] for choice in choices])
    assert [[ids[0] for ids in row] for row in token_ids] == [choice["token_ids"] for choice in choices]
    assert [[values[0] for values in row] for row in logprobs] == [c["logprobs"]["token_logprobs"] for c in choices]


def test_trl_chat(target: Target) -> None:
    messages = [{"role": "user", "content": "1+1="}]
    body = {
        "model": "tiny", "messages": messages, "n": 2, "repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0,
        "top_k": 0, "min_p": 0.0, "max_tokens": 5, "logprobs": True, "top_logprobs": 0, "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }  # fmt: skip
    reply = post(target, "/v1/chat/completions", body).json()
    rendered = post(target, "/tokenize", {"messages": messages}).json()["tokens"]
    assert reply["prompt_token_ids"] == rendered
    logprobs, token_ids = parse_logprobs([choice["logprobs"] for choice in reply["choices"]])
    assert [[ids[0] for ids in row] for row in token_ids] == [choice["token_ids"] for choice in reply["choices"]]
    assert all(values[0] <= 0 for row in logprobs for values in row)
    assert {choice["message"]["role"] for choice in reply["choices"]} == {"assistant"}


def test_tokenize_and_text_prompts(client: GenerationClient, target: Target) -> None:
    ids = tiny_llama.tokenizer()("2+3=", add_special_tokens=False)["input_ids"]
    assert client.tokenize("2+3=", add_special_tokens=False) == ids
    body = {"prompt": "2+3=", "max_tokens": 2, "return_token_ids": True, "add_special_tokens": False}
    assert post(target, "/v1/completions", body).json()["choices"][0]["prompt_token_ids"] == ids


@pytest.fixture
def sender(client: GenerationClient, target: Target, reference: Any) -> Any:
    """A sender; the server gets its own weights back afterwards."""
    sending = SafetensorsSender(client, target.weights_dir)
    sending.open()
    yield sending
    sending.send(named_weights(reference), f"restored-{torch.randint(2**40, ()).item()}")


def test_an_update_changes_the_policy(client: GenerationClient, sender: SafetensorsSender, target: Target) -> None:
    for step in (1, 2):
        new = tiny_llama.model(seed=step)
        sender.send(named_weights(new), f"step-{step}")
        assert client.weight_info()["weight_version"] == f"step-{step}"
        for sequence, scores in zip(PROMPTS, client.score(PROMPTS), strict=True):
            assert scores == pytest.approx(expected.sequence_logprobs(new, sequence), abs=1e-5)
        (completion,) = client.complete([PROMPTS[1]], 1, FREE, seed=2)[0]
        wanted = expected.completion_logprobs(new, PROMPTS[1], completion.token_ids, FREE)
        assert completion.logprobs == pytest.approx(wanted, abs=1e-4)
    assert list(target.weights_dir.iterdir()) == []


def test_a_refused_update_leaves_the_old_weights(
    client: GenerationClient, sender: SafetensorsSender, reference: Any
) -> None:
    before = client.weight_info()["weight_version"]
    other_shape = tiny_llama.model(seed=5, hidden_size=32)
    with pytest.raises(WeightSyncError, match="bad"):
        sender.send(named_weights(other_shape), "bad")
    assert client.weight_info()["weight_version"] == before
    (scores,) = client.score([PROMPTS[1]])
    assert scores == pytest.approx(expected.sequence_logprobs(reference, PROMPTS[1]), abs=1e-4)


def test_a_file_outside_the_folder_is_refused(
    client: GenerationClient, sender: SafetensorsSender, target: Target, tmp_path: Path, reference: Any
) -> None:
    outside = tmp_path / "outside.safetensors"
    write_weights(named_weights(reference), outside)
    link = target.weights_dir / "link.safetensors"
    link.symlink_to(outside)
    for path in (outside, link, target.weights_dir / ".." / outside.name):
        with pytest.raises(GenerationError):
            client.update_weights({"path": str(path)}, "escaped")
    link.unlink()
    assert client.weight_info()["weight_version"] != "escaped"


def test_calls_out_of_order_are_refused(target: Target, sender: SafetensorsSender) -> None:
    info = {"update_info": {"path": "x.safetensors"}}
    assert post(target, "/update_weights", info).status_code >= 400
    assert post(target, "/finish_weight_update", {"weight_version": "x"}).status_code >= 400
    assert post(target, "/start_weight_update", {}).status_code == 200
    assert post(target, "/start_weight_update", {}).status_code >= 400
    # The missing file closes the update that is open.
    assert post(target, "/update_weights", info).status_code >= 400
    assert post(target, "/finish_weight_update", {"weight_version": "x"}).status_code >= 400


def test_pause_holds_requests_back(client: GenerationClient, target: Target) -> None:
    client.pause("wait")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        late = pool.submit(lambda: GenerationClient(target.base_url).complete(PROMPTS, 1, FREE, seed=0))
        with pytest.raises(concurrent.futures.TimeoutError):
            late.result(timeout=0.5)
        client.resume()
        assert len(late.result(timeout=30)) == len(PROMPTS)
