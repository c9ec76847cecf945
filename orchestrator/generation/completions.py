"""Bodies of the answers to /v1/completions and /v1/chat/completions, in vLLM's shape."""

import asyncio
import itertools
import time
import uuid
from collections.abc import Sequence
from typing import Any

from orchestrator.generation.jobs import Output, Row
from orchestrator.generation.protocol import ChatRequest, CompletionRequest
from orchestrator.generation.score import PromptScores
from orchestrator.generation.serving import Asked, Service, check_model, checked, generate, prompts_of

# vLLM's own floor for log-probs, since JSON has no -inf.
LOGPROB_FLOOR = -9999.0

Json = dict[str, Any]


async def complete(service: Service, body: CompletionRequest) -> Json:
    """POST /v1/completions. Raises ApiError."""
    check_model(service, body.model)
    body.reject_unknown()
    prompts = prompts_of(service, body)
    asked = checked(service, body, prompts, 16 if body.max_tokens is None else body.max_tokens, body.logprobs)
    outputs = await generate(service, body, asked)
    # In a thread: there may be hundreds of thousands of tokens to write out, and /health must be answered meanwhile.
    return await asyncio.to_thread(_completed, service, body, asked, outputs)


def _completed(service: Service, body: CompletionRequest, asked: Asked, outputs: Sequence[Output]) -> Json:
    rows = [row for output in outputs for row in output.rows]
    texts = service.text.decode_all([_spoken(row) for row in rows], skip_special_tokens=body.skip_special_tokens)
    choices = []
    for index, (row, text) in enumerate(zip(rows, texts, strict=True)):
        scores = outputs[index // asked.n].scores
        choices.append(
            {
                "index": index,
                "text": text,
                "logprobs": None if asked.top is None else _logprobs(service, body, row),
                **_ending(service, body, row),
                "token_ids": row.token_ids if body.return_token_ids else None,
                "prompt_token_ids": asked.prompts[index // asked.n] if body.return_token_ids else None,
                "prompt_logprobs": None if scores is None else _prompt_logprobs(service, scores),
            }
        )
    return _answer(service, "text_completion", "cmpl", choices, asked, rows)


async def chat(service: Service, body: ChatRequest) -> Json:
    """POST /v1/chat/completions. Raises ApiError."""
    check_model(service, body.model)
    body.reject_unknown()
    prompt = service.text.render(body)
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    room = service.served.max_model_len - len(prompt)
    top = (body.top_logprobs or 0) if body.logprobs else None
    asked = checked(service, body, [prompt], room if limit is None else limit, top)
    (output,) = await generate(service, body, asked)
    ids = [_spoken(row) for row in output.rows]
    texts = service.text.decode_all(ids, skip_special_tokens=body.skip_special_tokens)
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, "tool_calls": []},
            "logprobs": None if top is None else {"content": _chat_logprobs(service, body, row)},
            **_ending(service, body, row),
            "token_ids": row.token_ids if body.return_token_ids else None,
        }
        for index, (row, text) in enumerate(zip(output.rows, texts, strict=True))
    ]
    answer = _answer(service, "chat.completion", "chatcmpl", choices, asked, output.rows)
    answer["prompt_token_ids"] = prompt if body.return_token_ids else None
    answer["prompt_logprobs"] = None if output.scores is None else _prompt_logprobs(service, output.scores)
    return answer


def _spoken(row: Row) -> list[int]:
    """What the text is made of: as in vLLM, the token that ends a completion has no part in it."""
    return row.token_ids[:-1] if row.finish_reason == "stop" else row.token_ids


def _ending(service: Service, body: CompletionRequest | ChatRequest, row: Row) -> Json:
    last = row.token_ids[-1] if row.finish_reason == "stop" else None
    # As in vLLM: the tokenizer's own end-of-sequence id is no "stop reason".
    own = last == service.served.tokenizer.eos_token_id and not body.ignore_eos
    return {"finish_reason": row.finish_reason, "stop_reason": None if own else last}


def _spell(service: Service, body: CompletionRequest | ChatRequest, token_id: int) -> str:
    return f"token_id:{token_id}" if body.return_tokens_as_token_ids else service.text.token(token_id)


def _floored(logprob: float) -> float:
    return max(logprob, LOGPROB_FLOOR)


def _logprobs(service: Service, body: CompletionRequest, row: Row) -> Json:
    tokens = [_spell(service, body, token) for token in row.token_ids]
    drawn = [_floored(logprob) for logprob in row.logprobs]
    tops = row.top or [[]] * len(tokens)
    top = [
        {token: logprob, **{_spell(service, body, i): _floored(v) for i, v in entries}}
        for token, logprob, entries in zip(tokens, drawn, tops, strict=True)
    ]
    offsets = list(itertools.accumulate(map(len, tokens), initial=0))[: len(tokens)]
    return {"tokens": tokens, "token_logprobs": drawn, "top_logprobs": top, "text_offset": offsets}


def _chat_logprobs(service: Service, body: ChatRequest, row: Row) -> list[Json]:
    def entry(token_id: int, logprob: float) -> Json:
        token = service.text.token(token_id)
        raw = list(token.encode("utf-8", errors="replace"))
        return {"token": _spell(service, body, token_id), "logprob": _floored(logprob), "bytes": raw}

    tops = row.top or [[]] * len(row.token_ids)
    return [
        {**entry(token, logprob), "top_logprobs": [entry(i, v) for i, v in entries]}
        for token, logprob, entries in zip(row.token_ids, row.logprobs, tops, strict=True)
    ]


def _prompt_logprobs(service: Service, scores: PromptScores) -> list[Json | None]:
    def entry(token_id: int, logprob: float, rank: int) -> Json:
        return {"logprob": _floored(logprob), "rank": rank, "decoded_token": service.text.token(token_id)}

    return [
        None if position is None else {str(s.token_id): entry(s.token_id, s.logprob, s.rank) for s in position}
        for position in scores
    ]


def _answer(service: Service, kind: str, prefix: str, choices: list[Json], asked: Asked, rows: Sequence[Row]) -> Json:
    prompt_tokens, completion_tokens = sum(map(len, asked.prompts)), sum(len(row.token_ids) for row in rows)
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": service.name,
        "choices": choices,
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }
