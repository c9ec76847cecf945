"""Clients that leave: their rows do not keep the batch, nor others waiting."""

import time

import pytest
import requests
from generation_servers import Target

from orchestrator.generation.client import GenerationClient, Sampling

BODY = {"prompt": [[5, 6, 7]], "n": 16, "max_tokens": 60, "ignore_eos": True, "logprobs": 0}


def tokens(target: Target) -> int:
    return int(requests.get(f"{target.base_url}/stats", timeout=10).json()["tokens"])


def test_the_rows_of_a_client_that_has_gone_leave(target: Target, client: GenerationClient) -> None:
    before, asked = tokens(target), 200
    for seed in range(asked):
        with pytest.raises(requests.Timeout):
            requests.post(f"{target.base_url}/v1/completions", json=BODY | {"seed": seed}, timeout=(5, 0.005))
    began = time.monotonic()
    client.complete([[5, 6, 7]], 1, Sampling(max_tokens=1), seed=0)
    waited = time.monotonic() - began
    assert tokens(target) - before < asked * 16 * 60 / 2, f"and the next client waited {waited:.1f} s"


def test_an_update_that_its_trainer_left_open_can_be_closed(target: Target) -> None:
    def post(path: str, body: dict[str, object]) -> requests.Response:
        return requests.post(target.base_url + path, json=body, timeout=10)

    assert post("/start_weight_update", {}).status_code == 200
    refused = post("/start_weight_update", {})
    assert (refused.status_code, "POST /finish_weight_update closes it" in refused.text) == (409, True)
    assert post("/finish_weight_update", {}).status_code == 409  # nothing was loaded
    assert post("/start_weight_update", {}).status_code == 200
    assert post("/finish_weight_update", {}).status_code == 409
