"""The embedded server's routes: vLLM's paths and bodies, so that one client speaks to both."""

import asyncio
import os
from importlib import metadata
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import Response

from orchestrator.generation import EMBEDDED, completions
from orchestrator.generation.answers import AsciiJSON, add_error_handlers, unless_gone
from orchestrator.generation.protocol import (
    ChatRequest,
    CompletionRequest,
    FinishWeightUpdate,
    InitWeightTransfer,
    TokenizeChatRequest,
    TokenizePromptRequest,
    UpdateWeights,
)
from orchestrator.generation.serving import Service, check_model
from orchestrator.generation.weights import WeightSession


def build(service: Service, session: WeightSession) -> FastAPI:
    """The application; it starts nothing, the engine's thread must run."""
    app = FastAPI(default_response_class=AsciiJSON, docs_url=None, redoc_url=None, openapi_url=None)
    add_error_handlers(app)
    _add_facts(app, service, session)
    _add_generation(app, service)
    _add_control(app, service)
    _add_weights(app, service, session)
    return app


def config_tree(service: Service, session: WeightSession) -> dict[str, Any]:
    """What the handshake reads, at the paths where vLLM's own configuration has it."""
    return {
        "model_config": {
            "model": service.served.path,
            "served_model_name": service.name,
            "tokenizer": service.served.path,
            "dtype": service.served.dtype,
            "seed": service.seed,
            "max_model_len": service.served.max_model_len,
            "max_logprobs": service.max_logprobs,
            "logprobs_mode": "processed_logprobs",
            "vocab_size": service.served.vocab_size,
        },
        "parallel_config": {"tensor_parallel_size": 1, "data_parallel_size": 1, "world_size": 1},
        "weight_transfer_config": None if session.folder is None else {"backend": "safetensors"},
        "lora_config": None,
    }


def _add_facts(app: FastAPI, service: Service, session: WeightSession) -> None:
    served = service.served

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200 if service.engine.alive else 503)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        card = {"id": service.name, "object": "model", "owned_by": "orchestrate", "root": served.path, "parent": None}
        return {"object": "list", "data": [{**card, "max_model_len": served.max_model_len}]}

    @app.get("/server_info")
    async def server_info(config_format: Literal["text", "json"] = "text") -> dict[str, Any]:
        config = config_tree(service, session)
        return {
            "vllm_config": config if config_format == "json" else str(config),
            "vllm_env": {},
            "system_env": {"pid": os.getpid()},
        }

    @app.get("/get_world_size")
    async def world_size() -> dict[str, int]:
        return {"world_size": 1}

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": _version(), "engine": EMBEDDED}

    @app.get("/stats")
    async def stats() -> dict[str, Any]:
        return {
            "requests": service.num_requests,
            **vars(service.engine.counters),
            "weight_syncs": session.syncs,
            "pid": os.getpid(),
            "run_id": os.environ.get("ORCHESTRATE_RUN_ID"),
        }


def _add_generation(app: FastAPI, service: Service) -> None:
    @app.post("/v1/completions")
    async def complete(request: Request, body: CompletionRequest) -> Response:
        return await unless_gone(request, completions.complete(service, body))

    @app.post("/v1/chat/completions")
    async def chat(request: Request, body: ChatRequest) -> Response:
        return await unless_gone(request, completions.chat(service, body))

    @app.post("/tokenize")
    async def tokenize(body: TokenizePromptRequest | TokenizeChatRequest) -> dict[str, Any]:
        check_model(service, body.model)
        body.reject_unknown()
        if isinstance(body, TokenizeChatRequest):
            ids = service.text.render(body)
        else:
            ids = service.text.encode(body.prompt, add_special_tokens=body.add_special_tokens)
        strings = service.text.token_strs(ids) if body.return_token_strs else None
        limit = service.served.max_model_len
        return {"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": strings}


def _add_control(app: FastAPI, service: Service) -> None:
    engine = service.engine

    @app.post("/reset_prefix_cache")
    async def reset_prefix_cache() -> dict[str, bool]:
        # Nothing is kept from one request to the next, so the cache is always as good as reset.
        return {"success": True}

    @app.post("/pause")
    async def pause(mode: Literal["abort", "wait", "keep"] = "abort", clear_cache: bool = True) -> dict[str, str]:
        await asyncio.wrap_future(engine.pause(mode))
        return {"status": "paused"}

    @app.post("/resume")
    async def resume() -> dict[str, str]:
        engine.resume()
        return {"status": "resumed"}

    @app.get("/is_paused")
    async def is_paused() -> dict[str, bool]:
        return {"is_paused": engine.paused is not None}


def _add_weights(app: FastAPI, service: Service, session: WeightSession) -> None:
    engine = service.engine

    @app.get("/weight_info")
    async def weight_info() -> dict[str, Any]:
        return {"weight_version": session.version, "weight_syncs": session.syncs}

    @app.post("/init_weight_transfer_engine")
    async def init(body: InitWeightTransfer) -> dict[str, str]:
        await asyncio.wrap_future(engine.call(lambda: session.init(body.init_info)))
        return {"message": "Weight transfer initialized"}

    @app.post("/start_weight_update")
    async def start() -> dict[str, str]:
        await asyncio.wrap_future(engine.call(session.start))
        return {"message": "Weight update started"}

    @app.post("/update_weights")
    async def update(body: UpdateWeights) -> dict[str, str]:
        await asyncio.wrap_future(engine.change_weights(lambda: session.update(body.update_info)))
        return {"message": "Weights updated"}

    @app.post("/finish_weight_update")
    async def finish(body: FinishWeightUpdate | None = None) -> dict[str, str]:
        version = None if body is None else body.weight_version
        await asyncio.wrap_future(engine.call(lambda: session.finish(version)))
        return {"message": "Weight update finished"}


def _version() -> str:
    try:
        return metadata.version("orchestrate")
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
