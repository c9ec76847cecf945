"""A step of a test: serves /health if it is given a port, and misbehaves as it is told to.

    step.py NOTES NAME [--port N] [--slow S] [--exit-after S --code N] [--stubborn] [--children]

It writes the (pid, start time) of every process it makes to a file in the folder NOTES, and the time of its end.
"""

import argparse
import http.server
import os
import signal
import sys
import threading
import time
from pathlib import Path

SLEEP = ["sleep", "300"]


def note(notes: Path, name: str) -> None:
    start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    scratch = notes / f".{name}.{os.getpid()}"
    scratch.write_text(f"{os.getpid()} {start}")
    scratch.replace(notes / f"{name}.pid")


def fork_child(notes: Path, name: str, *, daemon: bool = False, stubborn: bool = False, bare: bool = False) -> None:
    """A sleeping process below this one; `daemon`: in a session of its own, its parent gone; `bare`: no environment."""
    if os.fork() != 0:
        return
    os.setsid()
    if daemon and os.fork() != 0:
        os._exit(0)
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(notes, name)
    os.execvpe("sleep", SLEEP, {} if bare else dict(os.environ))  # noqa: S606


def serve(port: int, ready_at: float) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ready = time.monotonic() >= ready_at
            self.send_response(200 if ready else 503)
            self.end_headers()
            self.wfile.write(b"ok" if ready else b"loading the model")

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("notes", type=Path)
    parser.add_argument("name")
    parser.add_argument("--port", type=int)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--exit-after", type=float, default=300.0)
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--once", action="store_true", help="misbehave in the first life only")
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--children", action="store_true")
    args = parser.parse_args()
    print(f"hello from {args.name}")

    def end(number: int, frame: object) -> None:
        (args.notes / f"{args.name}.ended").write_text(str(time.monotonic_ns()))
        sys.exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if args.stubborn else end)
    if args.children:
        fork_child(args.notes, "setsid")
        fork_child(args.notes, "daemon", daemon=True)
        fork_child(args.notes, "stubborn", stubborn=True)
        fork_child(args.notes, "bare", daemon=True, bare=True)
    if args.port is not None:
        serve(args.port, time.monotonic() + args.slow)
    second_life = (args.notes / f"{args.name}.pid").exists()
    note(args.notes, args.name)
    time.sleep(300.0 if args.once and second_life else args.exit_after)
    print(f"{args.name} exits now")
    sys.exit(args.code)


if __name__ == "__main__":
    main()
