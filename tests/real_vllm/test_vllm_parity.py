"""Sampling settings mean the same in both servers: the whole distribution that a token is drawn from.

A completion of either server is forced on both, one token after the other, through the prompt: each position's whole
table of processed log-probs must name the same tokens and agree in their log-probs.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import requests
from transformers import AutoModelForCausalLM, AutoTokenizer

from orchestrator.assets import TINY_MATH
from orchestrator.generation.client import GenerationClient, Sampling
from orchestrator.training.probe import largest_gap, probe_sequences, sequence_logprobs
from tests.generation.generation_servers import Target

pytestmark = pytest.mark.vllm

TOLERANCE = 1e-4  # nats
VOCAB_SIZE, EOS = 102, 2
FILTERED = -1000.0  # JSON has no -inf: both servers say -9999
LENGTH = 8

SETTINGS = {
    "plain": Sampling(LENGTH),
    "temperature below 1": Sampling(LENGTH, temperature=0.6),
    "temperature above 1": Sampling(LENGTH, temperature=1.8),
    "the least temperature": Sampling(LENGTH, temperature=0.01),
    "top_p": Sampling(LENGTH, top_p=0.8),
    "a top_p that leaves one token": Sampling(LENGTH, top_p=1e-4),
    "top_k": Sampling(LENGTH, top_k=5),
    "a top_k above the vocabulary": Sampling(LENGTH, top_k=5000),
    "min_p": Sampling(LENGTH, min_p=0.05),
    "repetition penalty": Sampling(LENGTH, repetition_penalty=1.6),
    "repetition reward": Sampling(LENGTH, repetition_penalty=0.7),
    "temperature and top_p": Sampling(LENGTH, temperature=1.5, top_p=0.9),
    "top_k and top_p": Sampling(LENGTH, top_k=10, top_p=0.7),
    "min_p and temperature": Sampling(LENGTH, temperature=2.0, min_p=0.1),
    "penalty and top_k": Sampling(LENGTH, repetition_penalty=1.4, top_k=8),
    "all": Sampling(LENGTH, temperature=1.3, top_k=20, top_p=0.9, min_p=0.02, repetition_penalty=1.2),
    "all, and a stop id": Sampling(LENGTH, 1.3, 0.9, 20, 0.02, 1.2, stop_token_ids=(7,)),
    "greedy": Sampling(LENGTH, temperature=0.0),
    "greedy, the others are off": Sampling(LENGTH, temperature=0.0, top_k=3, top_p=0.2, min_p=0.5),
    "greedy and penalty": Sampling(LENGTH, temperature=0.0, repetition_penalty=1.5),
}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Questions that the model knows, and random ids, where its distribution is wide."""
    tokenizer = AutoTokenizer.from_pretrained(TINY_MATH)
    sums = [[{"role": "user", "content": f"{a}+{b}="}] for a, b in ((3, 4), (29, 29), (48, 17))]
    known = [list(tokenizer.apply_chat_template(one, add_generation_prompt=True, return_dict=False)) for one in sums]
    return [*known, *probe_sequences(VOCAB_SIZE, 12, seed=1), *probe_sequences(VOCAB_SIZE, 5, seed=2)]


def tables(target: Target, prefixes: Sequence[Sequence[int]], sampling: Sampling) -> list[dict[int, float]]:
    """Per prefix the next token's whole distribution, without the tokens that are filtered out."""
    body = {
        "prompt": list(map(list, prefixes)), "max_tokens": 1, "logprobs": -1, "return_tokens_as_token_ids": True,
        "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k, "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty, "stop_token_ids": list(sampling.stop_token_ids),
    }  # fmt: skip
    choices = requests.post(target.base_url + "/v1/completions", json=body, timeout=60).json()["choices"]
    whole = [choice["logprobs"]["top_logprobs"][0] for choice in choices]
    assert [len(table) for table in whole] == [VOCAB_SIZE] * len(prefixes)
    return [{int(key[9:]): value for key, value in table.items() if value > FILTERED} for table in whole]


@pytest.mark.parametrize("name", SETTINGS)
def test_the_distribution_is_the_same(
    vllm: Target, embedded: Target, both: tuple[Any, Any], prompts: list[list[int]], gaps: dict[str, float], name: str
) -> None:
    sampling = SETTINGS[name]
    groups = [client.complete(prompts, 8, sampling, seed=3) for client in both]
    drawn = {
        (*prompt, *completion.token_ids[:place]): (token, logprob)
        for found in groups
        for prompt, group in zip(prompts, found, strict=True)
        for completion in group
        for place, (token, logprob) in enumerate(zip(completion.token_ids, completion.logprobs, strict=True))
    }
    theirs, ours = (tables(target, list(drawn), sampling) for target in (vllm, embedded))
    widest = 0.0
    for (token, logprob), their, our in zip(drawn.values(), theirs, ours, strict=True):
        assert their.keys() == our.keys()
        widest = max(widest, abs(their[token] - logprob), *(abs(their[i] - our[i]) for i in our))
    gaps[f"{name}: {len(drawn)} positions"] = widest
    # The rounding of a logit is divided by the temperature, as the logit is.
    assert widest < TOLERANCE / min(1.0, sampling.temperature or 1.0)


def test_scores_are_the_same(both: tuple[Any, Any], prompts: list[list[int]], gaps: dict[str, float]) -> None:
    sequences = [*prompts, *probe_sequences(VOCAB_SIZE, 16, seed=7), list(range(3, 63))]
    theirs, ours = (client.score(sequences) for client in both)
    model = AutoModelForCausalLM.from_pretrained(TINY_MATH, dtype="float32")
    here = [sequence_logprobs(model, [sequence])[0] for sequence in sequences]
    gaps["scores, vLLM and embedded"] = largest_gap(theirs, ours)
    gaps["scores, vLLM and the model in this process"] = largest_gap(theirs, here)
    assert max(largest_gap(theirs, ours), largest_gap(theirs, here)) < TOLERANCE


def test_greedy_is_token_for_token_the_same(both: tuple[Any, Any], prompts: list[list[int]]) -> None:
    many = [*prompts, *([token, other] for token, other in itertools.product(range(3, 100, 9), repeat=2))]
    for sampling in (Sampling(12, 0.0), Sampling(12, 0.0, repetition_penalty=1.3)):
        theirs, ours = ([c.token_ids for (c,) in client.complete(many, 1, sampling, seed=None)] for client in both)
        assert theirs == ours


@pytest.mark.parametrize("which", [0, 1], ids=["vllm", "embedded"])
def test_tokens_come_as_often_as_the_distribution_says(
    both: tuple[Any, Any], vllm: Target, prompts: list[list[int]], which: int
) -> None:
    num_draws, sampling = 2000, Sampling(1, temperature=1.3, top_k=8)
    client: GenerationClient = both[which]
    for prompt in (prompts[1], prompts[3]):
        (group,) = client.complete([prompt], num_draws, sampling, seed=which)
        counts = Counter(completion.token_ids[0] for completion in group)
        (table,) = tables(vllm, [prompt], sampling)
        assert counts.keys() <= table.keys()
        for token, logprob in table.items():
            share = math.exp(logprob)
            deviation = math.sqrt(share * (1 - share) / num_draws)
            assert abs(counts[token] / num_draws - share) < 5 * deviation


ENDINGS: dict[str, dict[str, Any]] = {
    "end of sequence": {},
    "ignore_eos": {"ignore_eos": True},
    "a stop id": {"stop_token_ids": [6, 7]},
    "ignore_eos and the same id as a stop id": {"ignore_eos": True, "stop_token_ids": [EOS]},
    "more stop ids": {"stop_token_ids": list(range(3, 13))},
    "one token": {"max_tokens": 1},
}


@pytest.mark.parametrize("name", ENDINGS)
def test_completions_end_in_the_same_place(vllm: Target, embedded: Target, prompts: list[list[int]], name: str) -> None:
    body = {"prompt": prompts, "max_tokens": 12, "temperature": 0.0, "return_token_ids": True, **ENDINGS[name]}
    theirs, ours = (
        requests.post(target.base_url + "/v1/completions", json=body, timeout=60).json()["choices"]
        for target in (vllm, embedded)
    )
    kept = ("token_ids", "finish_reason", "stop_reason", "text")
    assert [{key: one[key] for key in kept} for one in theirs] == [{key: one[key] for key in kept} for one in ours]
    ends = {*ENDINGS[name].get("stop_token_ids", ()), *(() if "ignore_eos" in ENDINGS[name] else (EOS,))}
    for one in theirs:
        assert (one["finish_reason"] == "stop") is (one["token_ids"][-1] in ends)
        assert not ends & set(one["token_ids"][:-1])


def test_min_tokens_is_not_ignored_by_either(vllm: Target, embedded: Target, prompts: list[list[int]]) -> None:
    """vLLM keeps it; the embedded server refuses what it does not have. Our client never sends it."""
    body = {"prompt": prompts[0], "max_tokens": 12, "temperature": 0.0, "min_tokens": 9, "return_token_ids": True}
    (choice,) = requests.post(vllm.base_url + "/v1/completions", json=body, timeout=60).json()["choices"]
    assert len(choice["token_ids"]) >= 9
    refused = requests.post(embedded.base_url + "/v1/completions", json=body, timeout=60)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "min_tokens")


@pytest.mark.parametrize("which", [0, 1], ids=["vllm", "embedded"])
def test_seeds_reproduce(both: tuple[Any, Any], prompts: list[list[int]], which: int) -> None:
    client: GenerationClient = both[which]
    # Hot enough that two completions are equal only where they were drawn with the same noise.
    sampling = Sampling(LENGTH, temperature=2.0)

    def ask(seed: int, n: int = 8) -> list[list[list[int]]]:
        return [[c.token_ids for c in group] for group in client.complete(prompts, n, sampling, seed)]

    first = ask(1)
    assert ask(1) == first
    assert ask(2) != first
    assert [group[:3] for group in first] == ask(1, n=3)
    # Neighbouring seeds share nothing: choice 1 of seed 1 is not choice 0 of seed 2.
    after = ask(2)
    pairs = [pair for one, other in zip(first, after, strict=True) for pair in zip(one[1:], other[:-1], strict=True)]
    assert sum(a == b for a, b in pairs) < len(pairs) / 4
    assert sum(len({tuple(ids) for ids in group}) > 4 for group in first) > len(first) / 2
