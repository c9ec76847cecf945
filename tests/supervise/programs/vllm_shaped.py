"""No vLLM: a small HTTP server that answers in the shapes of vLLM 0.32, and lies on request.

    vllm_shaped.py --model FOLDER --port N [--served-model-name S] [--vocab-size N] [--dtype D] [--without PATH] ...

/server_info is what vLLM's routers give with VLLM_SERVER_DEV_MODE=1; the model's own config is not in it, because
pydantic leaves out dataclass fields that are not set at construction.
"""

import argparse
import asyncio
import json
import math
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from tokenizers import Tokenizer

DEV = ("/server_info", "/get_world_size", "/weight_info", "/is_paused")
DEV_POST = (
    "/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update", "/pause",
    "/resume", "/reset_prefix_cache",
)  # fmt: skip


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--served-model-name")
    parser.add_argument("--root", help="the folder that the model card names")
    parser.add_argument("--tokenizer", help="folder of the tokenizer; default: the model's")
    parser.add_argument("--chat-prefix", default="<|user|>", help="what the chat template puts before a user's words")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--max-model-len", type=int, default=24)
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--data-parallel-size", type=int, default=1)
    parser.add_argument("--backend", default="safetensors", help='of --weight-transfer-config; "" = none was given')
    parser.add_argument("--logprobs-mode", default="processed_logprobs")
    parser.add_argument("--version", default="0.32.0")
    parser.add_argument("--no-dev-mode", action="store_true")
    parser.add_argument("--api-key")
    parser.add_argument("--without", action="append", default=[], metavar="PATH")
    parser.add_argument("--hang", action="append", default=[], metavar="PATH", help="take a request and never answer")
    parser.add_argument("--trickle", action="append", default=[], metavar="PATH", help="a byte a second, for ever")
    parser.add_argument("--reuse-port", action="store_true")
    return parser.parse_args()


def error(status: int, kind: str, message: str, param: str | None = None) -> JSONResponse:
    body = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    return JSONResponse(body, status_code=status)


class Shaped:
    """The state that the routes share."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.name = args.served_model_name or args.model
        self.config = json.loads(Path(args.model, "config.json").read_text())
        self.vocab_size = args.vocab_size or self.config["vocab_size"]
        self.tokenizer = Tokenizer.from_file(str(Path(args.tokenizer or args.model, "tokenizer.json")))

    def models(self) -> dict[str, Any]:
        card = {
            "id": self.name, "object": "model", "created": 1790000000, "owned_by": "vllm",
            "root": self.args.root or self.args.model, "parent": None, "max_model_len": self.args.max_model_len,
            "permission": [{"id": "modelperm-0", "object": "model_permission", "allow_sampling": True}],
        }  # fmt: skip
        return {"object": "list", "data": [card]}

    def server_info(self, config_format: str) -> dict[str, Any]:
        args = self.args
        tree: Any = {
            "model_config": {
                "model": args.model, "tokenizer": args.tokenizer or args.model, "tokenizer_mode": "auto",
                "dtype": f"torch.{args.dtype}", "seed": 0, "max_model_len": args.max_model_len, "quantization": None,
                "max_logprobs": -1, "logprobs_mode": args.logprobs_mode, "served_model_name": self.name,
            },
            "cache_config": {"block_size": 16, "enable_prefix_caching": True},
            "parallel_config": {
                "pipeline_parallel_size": 1, "tensor_parallel_size": args.tensor_parallel_size,
                "data_parallel_size": args.data_parallel_size,
            },
            "lora_config": None,
            "weight_transfer_config": {"backend": args.backend} if args.backend else None,
        }  # fmt: skip
        if config_format == "text":
            tree = f"model={args.model!r}, dtype=torch.{args.dtype}, max_seq_len={args.max_model_len}"
        return {
            "vllm_config": tree,
            "vllm_env": {"VLLM_SERVER_DEV_MODE": True},
            "system_env": {"vllm_version": args.version, "is_cuda_available": "False"},
        }

    def tokenize(self, body: dict[str, Any]) -> Response:
        if "messages" in body:
            said = "".join(self.args.chat_prefix + message["content"] for message in body["messages"])
            text = said + "<|assistant|>"
        else:
            text = body["prompt"]
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        reply = {"count": len(ids), "max_model_len": self.args.max_model_len, "tokens": ids, "token_strs": None}
        return JSONResponse(reply)

    def complete(self, body: dict[str, Any]) -> Response:
        if body.get("model") not in (None, self.name):
            return error(404, "NotFoundError", f"The model `{body['model']}` does not exist.", "model")
        unknown = [int(token) for token in body.get("logit_bias") or {} if not 0 <= int(token) < self.vocab_size]
        if unknown:
            words = f"token_id(s) {unknown} in logit_bias contain out-of-vocab token ids. "
            return error(400, "BadRequestError", f"{words}Vocabulary size: {self.vocab_size}", "logit_bias")
        prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
        logprob = -math.log(self.vocab_size)
        choices = [
            {
                "index": index, "text": "", "logprobs": None, "finish_reason": "length", "stop_reason": None,
                "prompt_logprobs": [
                    None,
                    *({str(token): {"logprob": logprob, "rank": 1, "decoded_token": "?"}} for token in prompt[1:]),
                ],
            }
            for index, prompt in enumerate(prompts)
        ]  # fmt: skip
        return JSONResponse({"id": "cmpl-0", "object": "text_completion", "model": self.name, "choices": choices})


def build(args: argparse.Namespace) -> FastAPI:
    app, shaped = FastAPI(docs_url=None, redoc_url=None, openapi_url=None), Shaped(args)

    @app.middleware("http")
    async def lie(request: Request, call_next: Any) -> Response:
        path = request.url.path
        if args.api_key and path.startswith("/v1") and request.headers.get("authorization") != f"Bearer {args.api_key}":
            return JSONResponse({"error": "Unauthorized"}, status_code=401)
        if path in args.hang:
            await asyncio.sleep(600)
        if path in args.trickle:
            return StreamingResponse(trickle(), media_type="application/json")
        if path in args.without or (args.no_dev_mode and path in (*DEV, *DEV_POST)):
            return JSONResponse({"detail": "Not Found"}, status_code=404)
        return await call_next(request)

    add_routes(app, shaped, args)
    return app


def add_routes(app: FastAPI, shaped: Shaped, args: argparse.Namespace) -> None:
    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200)

    @app.get("/v1/models")
    async def models() -> Any:
        return shaped.models()

    @app.get("/version")
    async def version() -> Any:
        return {"version": args.version}

    @app.get("/server_info")
    async def server_info(config_format: str = "text") -> Any:
        return shaped.server_info(config_format)

    @app.get("/get_world_size")
    async def world_size(include_dp: bool = True) -> Any:
        return {"world_size": args.tensor_parallel_size * (args.data_parallel_size if include_dp else 1)}

    @app.get("/is_paused")
    async def is_paused() -> Any:
        return {"is_paused": False}

    @app.get("/weight_info")
    async def weight_info() -> Any:
        return {"weight_version": "default"}

    @app.post("/tokenize")
    async def tokenize(request: Request) -> Any:
        return shaped.tokenize(await request.json())

    @app.post("/v1/completions")
    async def complete(request: Request) -> Any:
        return shaped.complete(await request.json())

    for path in DEV_POST:
        app.add_api_route(path, lambda: {"message": "done"}, methods=["POST"])


async def trickle() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(1)


def main() -> None:
    args = options()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if args.reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((args.host, args.port))
    listener.listen()
    config = uvicorn.Config(build(args), log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    print("ready", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
