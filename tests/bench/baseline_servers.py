"""What the reward server is measured against: `python -m tests.bench.baseline_servers echo|openrlhf`.

echo: FastAPI as anyone writes it, which parses the body and answers with as many numbers, with our server's flags.
openrlhf: what OpenRLHF's server does around its model, with its flags: the body by `request.json()`, padding stripped
from every query, three lists in the answer, which is logged, as is every access. The model compares two texts.
"""

import logging
import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

END = "<|endoftext|>"
FLAGS: dict[str, dict[str, Any]] = {
    "echo": {"log_level": "warning", "access_log": False, "ws": "none", "proxy_headers": False},
    "openrlhf": {"log_level": "info"},
}

app = FastAPI()
logger = logging.getLogger("openrlhf")


@app.post("/echo")
async def echo(request: Request) -> JSONResponse:
    body = await request.json()
    return JSONResponse({"rewards": [1.0] * len(body["prompts"])})


@app.post("/get_reward")
async def get_reward(request: Request) -> JSONResponse:
    body = await request.json()
    queries = [query.strip(END) + END for query in body["query"]]
    rewards = [float(query.endswith(label + END)) for query, label in zip(queries, body["labels"], strict=True)]
    answer = {"rewards": rewards, "scores": rewards, "extra_logs": {"right": rewards}}
    logger.info("answered %s", answer)
    return JSONResponse(answer)


def main(flags: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(2048)
        print(f"listening on http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, timeout_keep_alive=30, **flags)).run(sockets=[sock])


if __name__ == "__main__":
    main(FLAGS[sys.argv[1]])
