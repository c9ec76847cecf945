"""A server in a thread that loads adapters as vLLM 0.32 does, by PEFT, and can be wrong about it on purpose."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from orchestrator.assets import TINY_MATH


class Adapters:
    """What is served: the base model and adapters by name. `fault`: ignore, unlisted or refuse; "" = none."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.models: dict[str, Any] = {"base": AutoModelForCausalLM.from_pretrained(TINY_MATH, dtype=torch.float32)}
        self.roots: dict[str, str] = {"base": str(TINY_MATH)}

    def load(self, name: str, path: str) -> tuple[int, Any]:
        if self.fault == "refuse" or name in self.models:
            return 400, {"error": {"message": f"The lora adapter '{name}' cannot be loaded."}}
        plain = AutoModelForCausalLM.from_pretrained(TINY_MATH, dtype=torch.float32)
        self.models[name] = plain if self.fault == "ignore" else PeftModel.from_pretrained(plain, path)
        self.roots[name] = path
        return 200, None

    def unload(self, name: str) -> tuple[int, Any]:
        del self.models[name], self.roots[name]
        return 200, None

    @torch.no_grad()
    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["model"] not in self.models:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        choices = []
        for index, prompt in enumerate(body["prompt"]):
            logits = self.models[body["model"]](input_ids=torch.tensor([prompt])).logits[0, -1]
            scores = logits.log_softmax(-1)
            top = {f"token_id:{token}": scores[token].item() for token in body["logprob_token_ids"]}
            choices.append({"index": index, "logprobs": {"top_logprobs": [top]}})
        return 200, {"choices": choices}

    def listed(self) -> tuple[int, Any]:
        hidden = self.fault == "unlisted"
        return 200, {"data": [{"id": n, "root": r} for n, r in self.roots.items() if n == "base" or not hidden]}


class Handler(BaseHTTPRequestHandler):
    served: Adapters

    def do_GET(self) -> None:
        self._answer(*self.served.listed())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match self.path:
            case "/v1/load_lora_adapter":
                assert Path(body["lora_path"], "adapter_config.json").is_file()
                self._answer(*self.served.load(body["lora_name"], body["lora_path"]))
            case "/v1/unload_lora_adapter":
                self._answer(*self.served.unload(body["lora_name"]))
            case _:
                self._answer(*self.served.complete(body))

    def _answer(self, status: int, content: Any) -> None:
        # As vLLM does, a load is answered in plain words.
        data = b"Success: LoRA adapter added successfully." if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def adapter_server(fault: str = "") -> Iterator[tuple[str, Adapters]]:
    """Its address, and what it serves."""
    served = Adapters(fault)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"served": served}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", served
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
