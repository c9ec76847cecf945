"""`python -m tests.bench generation`: tokens per second of the embedded server, over HTTP, on the shipped model.

Beside it, in turn: `model.generate` of transformers on the same batch in this process, and the real vLLM where
VLLM_PYTHON names an interpreter that has it. All in float32 with one thread for the matrices.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from orchestrator.data.arithmetic import arithmetic_rows
from orchestrator.generation.asking import completion_body, completions_of
from orchestrator.generation.client import GenerationClient
from orchestrator.generation.params import Sampling
from orchestrator.generation.transport import Transport
from tests.generation.generation_servers import VLLM_PYTHON, Target, start_embedded, start_vllm, stop

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "orchestrator" / "assets" / "tiny_math"
NAME = "tiny_math"
PROMPTS, CHOICES = 16, 8
REPEATS = 15
TIMEOUT_S = 120.0
AIMS = {"model.generate": 0.8, "vLLM": 1.0}
"""Least ratio of the embedded server's speed to theirs."""
Prompts = list[list[int]]
Side = Callable[["Case", Prompts, int], int]
"""Completes the prompts with a seed; returns the number of tokens, end tokens counted."""


@dataclass(frozen=True)
class Case:
    """What is asked for. Where the end token is ignored, every completion has `max_tokens`."""

    words: str
    max_tokens: int
    ignore_eos: bool


CASES = (Case("sums, ended by the model", 8, ignore_eos=False), Case("64 tokens each", 64, ignore_eos=True))


def bench_generation(cwd: Path) -> None:
    """Tokens per second where one request with the whole batch follows the other."""
    torch.set_num_threads(1)
    prompts = _prompts()
    print(f"generation, {PROMPTS} prompts x {CHOICES}, shipped model, float32, medians of {REPEATS} runs in turn")
    with _sides(cwd) as sides:
        for case in CASES:
            for side in sides.values():
                side(case, prompts, 0)  # the first of a kind is slower everywhere
            runs = [
                {name: _speed(side, case, prompts, seed) for name, side in sides.items()} for seed in range(REPEATS)
            ]
            _report(case, runs)
    if not os.environ.get(VLLM_PYTHON):
        print(f"  vLLM: left out, since {VLLM_PYTHON} names no interpreter")


def _prompts() -> Prompts:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    chats = [[{"role": "user", "content": row["prompt"]}] for row in arithmetic_rows("train", PROMPTS, seed=0)]
    ids: Prompts = tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=False)
    return ids


@contextmanager
def _sides(cwd: Path) -> Iterator[dict[str, Side]]:
    with ExitStack() as stack:
        sides = {
            "embedded": _over_http(_until_exit(stack, start_embedded(MODEL, cwd, name=NAME))),
            "model.generate": _bare(),
        }
        if os.environ.get(VLLM_PYTHON):
            vllm = start_vllm(MODEL, cwd / "vllm", name=NAME, max_model_len=128)
            sides["vLLM"] = _over_http(_until_exit(stack, vllm))
        yield sides


def _until_exit(stack: ExitStack, server: Target) -> Target:
    stack.callback(stop, server)
    return server


def _over_http(server: Target) -> Side:
    client = GenerationClient(server.base_url, NAME, timeout_s=TIMEOUT_S)
    http = Transport(server.base_url, TIMEOUT_S, token=None)

    def complete(case: Case, prompts: Prompts, seed: int) -> int:
        wanted = Sampling(case.max_tokens)
        if case.ignore_eos:  # which the client never asks for
            body = completion_body({"model": NAME}, prompts, CHOICES, wanted, seed)
            reply = http.post("/v1/completions", body | {"ignore_eos": True})
            groups = completions_of(reply, prompts, CHOICES, case.max_tokens)
        else:
            groups = client.complete(prompts, CHOICES, wanted, seed)
        return sum(len(completion.token_ids) for group in groups for completion in group)

    return complete


def _bare() -> Side:
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    end, pad = model.generation_config.eos_token_id, model.generation_config.pad_token_id

    def complete(case: Case, prompts: Prompts, seed: int) -> int:
        torch.manual_seed(seed)
        longest = max(map(len, prompts))
        ids = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        ids = ids.repeat_interleave(CHOICES, dim=0)
        model.generation_config.eos_token_id = None if case.ignore_eos else end
        drawn = model.generate(
            input_ids=ids,
            attention_mask=(ids != pad).long(),
            max_new_tokens=case.max_tokens,
            do_sample=True,
            top_k=0,
            pad_token_id=pad,
        )[:, longest:]
        if case.ignore_eos:
            return drawn.numel()
        ended = (drawn == end).int().cumsum(dim=-1) - (drawn == end).int()
        return int((ended == 0).sum())

    return complete


def _speed(side: Side, case: Case, prompts: Prompts, seed: int) -> float:
    began = time.perf_counter()
    tokens = side(case, prompts, seed)
    return tokens / (time.perf_counter() - began)


def _report(case: Case, runs: list[dict[str, float]]) -> None:
    speeds = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    print(f"{case.words}: embedded server {speeds['embedded']:.0f} tokens/s")
    for name, aim in AIMS.items():
        if name in speeds:
            ratios = sorted(run["embedded"] / run[name] for run in runs)
            ratio = statistics.median(ratios)
            print(
                f"  {name} {speeds[name]:.0f} tokens/s, ratio {ratio:.2f} (least {ratios[0]:.2f}, greatest "
                f"{ratios[-1]:.2f})   aim {aim}: {'met' if ratio >= aim else 'MISSED'}"
            )
