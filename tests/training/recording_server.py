"""`python -m tests.training.recording_server FILE [server flags]`: the embedded server, and a line for every request.

A line holds the path, the weight version at its arrival, and of a completion whether it samples (a rollout) or only
scores the prompt.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from orchestrator.generation import server
from orchestrator.generation.app import build
from orchestrator.generation.serving import Service
from orchestrator.generation.weights import WeightSession

record = Path(sys.argv[1])


def recording(service: Service, session: WeightSession) -> FastAPI:
    app = build(service, session)

    @app.middleware("http")
    async def write_down(request: Request, call_next: Any) -> Response:
        body = await request.body()
        samples = request.url.path == "/v1/completions" and "prompt_logprobs" not in json.loads(body)
        line = {"path": request.url.path, "weight_version": session.version, "rollout": samples}
        with record.open("a") as file:
            file.write(json.dumps(line) + "\n")
        answer: Response = await call_next(request)
        return answer

    return app


if __name__ == "__main__":
    server.build = recording
    sys.exit(server.main(sys.argv[2:]))
