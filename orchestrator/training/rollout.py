"""Rollouts for TRL: this rank's prompts in, completions of the generation service out, one request for all ranks."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object
from transformers import PreTrainedTokenizerBase

from orchestrator.generation.client import Completion, GenerationClient, Sampling
from orchestrator.training.prompts import prompt_ids
from orchestrator.training.reward import STATUS_COLUMN

SEED_STRIDE = 1_000_003  # a prime: seeds of neighbouring runs and rounds never meet in practice

Rollout = Callable[[list[Any], Any], dict[str, Any]]


def groups(prompts: Sequence[list[int]], size: int) -> tuple[list[list[int]], int]:
    """Runs of equal prompts as (distinct prompts in order, n): n completions of each give one per row.

    n is `size` when every run is a multiple of it, else 1 (each row is its own request).
    """
    runs = [(list(prompt), sum(1 for _ in same)) for prompt, same in groupby(prompts)]
    if any(length % size for _, length in runs):
        return [list(prompt) for prompt in prompts], 1
    return [prompt for prompt, length in runs for _ in range(length // size)], size


def make_rollout(
    tokenizer: PreTrainedTokenizerBase,
    client: GenerationClient,
    push_weights: Callable[[int], None],
    seed: int,
) -> Rollout:
    """A `rollout_func` of TRL 1.16. It runs on every rank; the main one speaks to the server for all of them."""
    round_of: dict[int, int] = {}

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        step = trainer.state.global_step
        push_weights(step)
        round_of[step] = round_of.get(step, -1) + 1
        ids = [prompt_ids(tokenizer, prompt, trainer.chat_template_kwargs) for prompt in prompts]
        training = trainer.model.training
        size = trainer.num_generations if training else trainer.num_generations_eval
        request_seed = (seed * SEED_STRIDE + step * 1009 + round_of[step]) % 2**31
        every = gather_object(ids)
        replies: list[Any] = [None]
        if trainer.accelerator.is_main_process:
            distinct, n = groups(every, size)
            found = client.complete(distinct, n=n, sampling=sampling_of(trainer), seed=request_seed)
            replies = [[completion for group in found for completion in group]]
        broadcast_object_list(replies, from_process=0)
        first = trainer.accelerator.process_index * len(prompts)
        return _as_trl(ids, replies[0][first : first + len(prompts)])

    return rollout


def sampling_of(trainer: Any) -> Sampling:
    """The trainer's own sampling settings, in the server's terms."""
    return Sampling(
        max_tokens=trainer.max_completion_length,
        temperature=trainer.temperature,
        top_p=trainer.top_p,
        top_k=trainer.top_k,
        min_p=trainer.min_p or 0.0,
        repetition_penalty=trainer.repetition_penalty,
    )


def _as_trl(prompts: list[list[int]], completions: list[Completion]) -> dict[str, Any]:
    return {
        "prompt_ids": prompts,
        "completion_ids": [list(completion.token_ids) for completion in completions],
        "logprobs": [list(completion.logprobs) for completion in completions],
        STATUS_COLUMN: [status_of(completion) for completion in completions],
    }


def status_of(completion: Completion) -> str:
    return {"stop": "completed", "length": "truncated"}.get(completion.finish_reason, "aborted")
