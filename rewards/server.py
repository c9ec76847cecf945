"""The reward server's command line: `python -P -m rewards.server --function accuracy --port 8008`.

Exit codes: 2 for the command line itself, 3 when the server cannot start, -15 (by signal) when it is stopped.
"""

import argparse
import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from rewards.calling.targets import LoadError
from rewards.contract import FunctionSpec
from rewards.running.engine import build_engine
from rewards.running.inline import Engine
from rewards.serving.app import build_app
from rewards.serving.flags import StartError, parse_functions, parse_hook, parser, read_settings
from rewards.serving.http_limits import limited_protocol

EXIT_START_FAILED = 3
LOOPBACK = ("127.0.0.1", "::1", "localhost")


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


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Binding here, not in uvicorn, makes port 0 and a taken port ours to report."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)  # without proto, asyncio leaves Nagle on: 40 ms per request
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(2048)  # the backlog of a trainer whose every rank and sample has a connection
    except (OSError, OverflowError) as error:
        raise StartError(f"cannot listen on {host}:{port}: {error}; choose another --host or --port") from error
    return sock


def engine_for(args: argparse.Namespace, specs: Sequence[FunctionSpec]) -> Engine:
    if args.workers < 0 or not args.timeout_s > 0 or not args.start_timeout_s > 0:
        raise StartError("--workers must be 0 or more, --timeout-s and --start-timeout-s above 0")
    return build_engine(
        specs,
        workers=args.workers,
        timeout_s=args.timeout_s,
        start_timeout_s=args.start_timeout_s,
        hidden_env=(args.token_env,) if args.token_env else (),
    )


def serve(args: argparse.Namespace) -> str | None:
    """Run until stopped. Returns why the server gave up, or None. Raises StartError."""
    settings = read_settings(args)
    hook = parse_hook(args.post_process)
    engine = engine_for(args, [*parse_functions(args.function), *([hook] if hook else [])])
    fatal: list[str] = []

    def give_up(reason: str) -> None:
        fatal.append(reason)
        server.should_exit = True

    server = Server(uvicorn_config(build_app(settings, engine, give_up), settings.request_timeout_s), engine)
    sock = listen(args.host, args.port)
    announce(args.host, sock.getsockname()[1], settings.token)
    server.run(sockets=[sock])
    return fatal[0] if fatal else None


def uvicorn_config(app: ASGIApp, request_timeout_s: float) -> uvicorn.Config:
    # No access log: requests are the run's business; they hold prompts and gold answers.
    return uvicorn.Config(
        app,
        http=limited_protocol(request_timeout_s),
        ws="none",
        proxy_headers=False,  # nobody asks where a request comes from
        log_level="warning",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
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
