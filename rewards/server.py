"""The reward server's command line: `python -P -m rewards.server --function accuracy --port 8008`.

Exit codes: 2 for the command line itself, 3 when the server cannot start, -15 (by signal) when it is stopped.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from rewards.app import Settings, build_app
from rewards.contract import FunctionSpec, SpecError, spec_from_mapping
from rewards.inline import Engine, Inline
from rewards.pool import Pool
from rewards.targets import LoadError, source_file, split_target

EXIT_START_FAILED = 3
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class StartError(Exception):
    """The server cannot start: what, where, and how to fix it."""


class Server(uvicorn.Server):
    """Uvicorn that kills the workers as soon as it is told to stop, and that can be told to give up."""

    def __init__(self, config: uvicorn.Config, engine: Engine) -> None:
        super().__init__(config)
        self.engine = engine
        self.loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.loop is not None:  # what is under way then ends with 503 instead of holding up the shutdown
            self.loop.call_soon_threadsafe(self.engine.abort)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="rewards.server", description="Scores completions with reward functions.")
    p.add_argument(
        "--function",
        action="append",
        required=True,
        metavar="TARGET",
        help="built-in name, package.module:name, file.py:name, or a JSON object {name, target, weight, ...}; repeat",
    )
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8008, help="0: any free port; it is printed")
    p.add_argument("--workers", type=int, default=1, help="processes; 0: built-ins inside the server")
    p.add_argument("--timeout-s", type=float, default=10.0, help="limit of one unit (sample, group or batch), seconds")
    p.add_argument("--start-timeout-s", type=float, default=120.0, help="limit for a worker's imports and self-tests")
    p.add_argument("--token-env", metavar="NAME", help="environment variable that holds the bearer token")
    p.add_argument("--on-error", choices=("fail", "mask"), default="fail")
    p.add_argument("--max-batch", type=int, default=4096, help="samples per request")
    p.add_argument("--max-body-mb", type=float, default=64.0, help="MiB per request")
    return p


def parse_function(text: str) -> FunctionSpec:
    """A `--function` value. Raises StartError."""
    try:
        raw = json.loads(text) if text.lstrip().startswith("{") else {"target": text}
        spec = spec_from_mapping(raw)
        source_file(split_target(spec.target)[0])
    except json.JSONDecodeError as error:
        raise StartError(f"--function {text}: not valid JSON: {error}") from error
    except (SpecError, LoadError) as error:
        raise StartError(f"--function {text}: {error}") from error
    return spec


def parse_functions(texts: Sequence[str]) -> list[FunctionSpec]:
    specs = [parse_function(text) for text in texts]
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise StartError(f"two functions are named {name!r}: give one of them another name")
    return specs


def read_token(name: str | None) -> str | None:
    if name is None:
        return None
    token = os.environ.get(name, "").strip()
    if not token:
        raise StartError(f"--token-env {name}: this environment variable is unset or empty: export it")
    return token


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Binding here, not in uvicorn, makes port 0 and a taken port ours to report."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)  # without proto, asyncio leaves Nagle on: 40 ms per request
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
    except (OSError, OverflowError) as error:
        raise StartError(f"cannot listen on {host}:{port}: {error}; choose another --host or --port") from error
    return sock


def build_engine(args: argparse.Namespace, specs: Sequence[FunctionSpec]) -> Engine:
    if args.workers < 0 or not args.timeout_s > 0 or not args.start_timeout_s > 0:
        raise StartError("--workers must be 0 or more, --timeout-s and --start-timeout-s above 0")
    if args.workers == 0:
        return Inline(specs)
    return Pool(
        specs,
        workers=args.workers,
        timeout_s=args.timeout_s,
        start_timeout_s=args.start_timeout_s,
        hidden_env=(args.token_env,) if args.token_env else (),
    )


def serve(args: argparse.Namespace) -> str | None:
    """Run until stopped. Returns why the server gave up, or None. Raises StartError."""
    token = read_token(args.token_env)
    engine = build_engine(args, parse_functions(args.function))
    settings = Settings(
        workers=args.workers,
        timeout_s=args.timeout_s,
        on_error=args.on_error,
        max_batch=args.max_batch,
        max_body_bytes=int(args.max_body_mb * 2**20),
        token=token,
    )
    fatal: list[str] = []

    def give_up(reason: str) -> None:
        fatal.append(reason)
        server.should_exit = True

    server = Server(uvicorn_config(build_app(settings, engine, give_up)), engine)
    sock = listen(args.host, args.port)
    announce(args.host, sock.getsockname()[1], token)
    server.run(sockets=[sock])
    return fatal[0] if fatal else None


def uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    # No access log: requests are the run's business; they hold prompts and gold answers.
    return uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=1, timeout_keep_alive=30
    )


def announce(host: str, port: int, token: str | None) -> None:
    shown = f"[{host}]" if ":" in host else host
    print(f"rewards.server: listening on http://{shown}:{port}", flush=True)
    if host not in LOOPBACK and token is None:
        print(f"rewards.server: {host} is open to the network without a token: set --token-env", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        problem = serve(args)
    except (StartError, LoadError) as error:
        problem = str(error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if problem is not None:
        print(f"rewards.server: {problem}", file=sys.stderr)
        return EXIT_START_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
