"""One probe, and whose socket answered it."""

import contextlib
import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from orchestrator.steps import HttpProbe
from orchestrator.supervise.health import Healthy, Unhealthy, owns_port, probe
from orchestrator.supervise.ports import PortOwner


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/hang":
            threading.Event().wait(1.0)
        code = {"/health": 200, "/moved": 302}.get(self.path, 503)
        self.send_response(code)
        self.send_header("Location", "/health")
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(b"y" * 500)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_healthy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    assert probe(HttpProbe(url=f"{url}/health")) == Healthy()


def test_unhealthy_with_the_start_of_the_body(url: str) -> None:
    assert probe(HttpProbe(url=f"{url}/busy")) == Unhealthy("503: " + "y" * 200)


def test_a_redirect_is_no_health(url: str) -> None:
    answer = probe(HttpProbe(url=f"{url}/moved"))
    assert isinstance(answer, Unhealthy)
    assert answer.reason.startswith("302: ")


def test_no_answer_in_time(url: str) -> None:
    assert probe(HttpProbe(url=f"{url}/hang", timeout_s=0.2)) == Unhealthy("no answer within 0.2 s")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert probe(HttpProbe(url=f"http://127.0.0.1:{port}/")) == Unhealthy("connection refused")


def test_what_is_not_http(url: str) -> None:
    assert isinstance(probe(HttpProbe(url="nonsense")), Unhealthy)
    assert probe(HttpProbe(url="http://no-such-host.invalid/")) == Unhealthy("the host name cannot be resolved")


LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', 0), reuse_port=True); "
IN_CHILD = LISTEN + "import os; os.fork() and time.sleep(300); print(s.getsockname()[1], flush=True); time.sleep(300)"


def test_a_port_is_owned_by_a_process_tree() -> None:
    server = subprocess.Popen([sys.executable, "-c", IN_CHILD], stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdout is not None
    port = int(server.stdout.readline())
    other = socket.socket()
    try:
        assert owns_port(server.pid, port) is True
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        both = owns_port(server.pid, port)
        assert isinstance(both, PortOwner)
        assert both.pid == os.getpid()
    finally:
        other.close()
        os.killpg(server.pid, 9)
        server.communicate()
    assert owns_port(os.getpid(), port) is False
