"""Servers that a recipe may be pointed at by mistake, or that hang: odd_server.py KIND PORT.

wedged-reward: /health and /info answer, /v1/score takes a request and keeps it; wedged-workers: it keeps those with a
sample in them. trl: the routes of the `trl vllm-serve`
of TRL 1.10 and older. web: answers every path with a page. get-reward: an OpenRLHF or Align-Anything reward server.
"""

import hashlib
import http.server
import json
import os
import sys
import threading
from pathlib import Path

import rewards.functions.accuracy as accuracy

TRL_GET = ("/health/", "/get_world_size/")
POST_ONLY = {
    "trl": ("/generate/", "/init_communicator/", "/update_named_param/", "/reset_prefix_cache/"),
    "get-reward": ("/get_reward",),
}
INFO = {
    "protocol": "orchestrate-rewards/1", "version": "0.1.0", "pid": os.getpid(), "run_id": None,
    "functions": [
        {
            "name": "accuracy", "target": "accuracy", "weight": 1.0, "granularity": "sample", "key": None, "params": {},
            "shape": "trl", "eval_key": None, "only": {}, "wants_completion_ids": False,
            "required_columns": ["answer"], "is_async": False,
            "source_sha256": hashlib.sha256(Path(accuracy.__file__).read_bytes()).hexdigest(),
            "self_test": {"passed": True, "detail": ""},
        }
    ],
    "dialects": ["/v1/score"], "workers": 1, "timeout_s": 10.0, "on_error": "fail", "max_batch": 4096,
    "samples_scored": 0, "requests": 0,
}  # fmt: skip


class Handler(http.server.BaseHTTPRequestHandler):
    kind = "web"

    def do_GET(self) -> None:
        if self.kind == "web":
            self.reply(200, "<html>hello</html>", "text/html")
        elif self.kind == "trl" and self.path in TRL_GET:
            self.reply(200, json.dumps({"world_size": 1}))
        elif self.kind == "trl" and f"{self.path}/" in TRL_GET:
            self.send_response(307)
            self.send_header("Location", f"{self.path}/")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path in POST_ONLY.get(self.kind, ()):
            self.reply(405, json.dumps({"detail": "Method Not Allowed"}))
        elif self.kind.startswith("wedged") and self.path in ("/health", "/info"):
            self.reply(200, json.dumps(INFO))
        else:
            self.reply(404, json.dumps({"detail": "Not Found"}))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.kind == "wedged-workers" and not request["prompts"]:
            self.reply(200, json.dumps({"components": {}, "rewards": [], "errors": [], "logs": {}, "aborted": []}))
        elif self.kind.startswith("wedged"):
            threading.Event().wait(600)
        self.reply(404, json.dumps({"detail": "Not Found"}))

    def reply(self, status: int, body: str, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    Handler.kind = sys.argv[1]
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler) as server:
        print("ready", flush=True)
        server.serve_forever()
