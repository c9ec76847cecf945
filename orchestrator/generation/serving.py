"""From a request body to checked token ids, and from those to jobs for the engine."""

import asyncio
from dataclasses import dataclass
from typing import Any

from orchestrator.generation import sampling
from orchestrator.generation.engine import Engine
from orchestrator.generation.errors import ApiError
from orchestrator.generation.jobs import Job, Output
from orchestrator.generation.loading import Served
from orchestrator.generation.protocol import ChatRequest, CompletionRequest
from orchestrator.generation.text import Text

# Most completions one request may ask for, all prompts together: far above any batch, far below what memory takes.
MAX_SEQUENCES = 2**17


@dataclass
class Service:
    """What answering needs, shared by all requests."""

    served: Served
    engine: Engine
    text: Text
    name: str
    seed: int
    max_logprobs: int
    """Largest `logprobs` and `prompt_logprobs`; -1 lifts the limit."""
    num_requests: int = 0
    """So far; also numbers the requests that bring no seed."""


@dataclass(frozen=True)
class Asked:
    """A checked request: token ids, and how many likeliest tokens to report."""

    prompts: list[list[int]]
    n: int
    max_tokens: int
    top: int | None
    prompt_top: int | None


def check_model(service: Service, name: str | None) -> None:
    """Raise ApiError 404 unless `name` is the served model, or nothing."""
    if name and name != service.name:
        raise ApiError(f"The model `{name}` does not exist.", status=404, param="model")


def prompts_of(service: Service, body: CompletionRequest) -> list[list[int]]:
    prompt: Any = body.prompt
    if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
        prompt = [prompt]
    return [
        service.text.encode(one, add_special_tokens=body.add_special_tokens) if isinstance(one, str) else one
        for one in prompt
    ]


def checked(
    service: Service, body: CompletionRequest | ChatRequest, prompts: list[list[int]], max_tokens: int, top: int | None
) -> Asked:
    n = 1 if body.n is None else body.n
    if not prompts or not all(prompts):
        raise ApiError("prompt must hold at least one token", param="prompt")
    if not 1 <= n * len(prompts) <= MAX_SEQUENCES:
        raise ApiError(f"n must be at least 1, and n x prompts at most {MAX_SEQUENCES}, got n={n}", param="n")
    limit, vocab = service.served.max_model_len, service.served.vocab_size
    for prompt in prompts:
        bad = next((token for token in prompt if not 0 <= token < vocab), None)
        if bad is not None:
            raise ApiError(f"Token id {bad} is out of vocabulary (0 to {vocab - 1})", param="prompt")
        if len(prompt) + max_tokens > limit:
            raise ApiError(
                f"This model's maximum context length is {limit} tokens, but the prompt has {len(prompt)} "
                f"and max_tokens={max_tokens}: {len(prompt) + max_tokens} in all.",
                param="max_tokens",
            )
    tops = {"logprobs": top, "prompt_logprobs": body.prompt_logprobs}
    counts = {name: _top_count(service, name, asked) for name, asked in tops.items()}
    return Asked(prompts, n, max_tokens, counts["logprobs"], counts["prompt_logprobs"])


def _top_count(service: Service, field_name: str, asked: int | None) -> int | None:
    if asked is None:
        return None
    vocab = service.served.vocab_size
    limit = vocab if service.max_logprobs == -1 else service.max_logprobs
    count = vocab if asked == -1 else asked
    if not 0 <= count <= limit:
        raise ApiError(f"{field_name} must be between 0 and {limit} (or -1 for all), got {asked}", param=field_name)
    return min(count, vocab)


async def generate(service: Service, body: CompletionRequest | ChatRequest, asked: Asked) -> list[Output]:
    """One output per prompt. A prompt with more choices than a batch may hold is cut into several jobs."""
    wanted = body.sampling(asked.max_tokens)
    eos = () if body.ignore_eos else service.served.eos_ids
    stops = tuple(dict.fromkeys((*eos, *wanted.stop_token_ids)))
    size = service.engine.max_batch_rows
    service.num_requests += 1
    seed = body.seed
    if seed is None:
        seed = int(sampling.row_keys(service.seed, 0, [service.num_requests])[0])
    jobs = [
        Job(
            prompt=prompt,
            sampling=wanted,
            seed=seed,
            prompt_index=index,
            choices=range(start, min(start + size, asked.n)),
            stop_ids=stops,
            num_top=asked.top or 0,
            prompt_top=asked.prompt_top if start == 0 else None,
        )
        for index, prompt in enumerate(asked.prompts)
        for start in range(0, asked.n, size)
    ]
    futures = service.engine.submit(jobs)
    try:
        parts = await asyncio.gather(*map(asyncio.wrap_future, futures))
    except asyncio.CancelledError:
        service.engine.abandon(futures)
        raise
    per_prompt = len(jobs) // len(asked.prompts)
    groups = [parts[start : start + per_prompt] for start in range(0, len(parts), per_prompt)]
    return [Output([row for part in group for row in part.rows], group[0].scores) for group in groups]
