"""A hub on loopback that serves one folder as one model, in the part of the hub's API that downloads use."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub(name: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Address, and the paths that were asked for, as they come."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(body=True)

        def do_HEAD(self) -> None:
            self._reply(body=False)

        def log_message(self, *args: object) -> None:
            """Nothing on stderr."""

        def _reply(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            asked.append(f"{self.command} {path}")
            if path in (f"/api/models/{name}", f"/api/models/{name}/revision/main"):
                content = json.dumps(self._info()).encode()
            elif path.startswith(f"/{name}/resolve/{COMMIT}/") and (folder / path.rpartition("/")[2]).is_file():
                content = (folder / path.rpartition("/")[2]).read_bytes()
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def _info(self) -> dict[str, object]:
            files = sorted(path for path in folder.iterdir() if path.is_file())
            siblings = [{"rfilename": path.name, "size": path.stat().st_size} for path in files]
            return {"id": name, "sha": COMMIT, "siblings": siblings, "private": False, "tags": [], "downloads": 0}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
