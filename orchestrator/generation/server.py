"""`python -P -m orchestrator.generation.server --model FOLDER`: a small server with vLLM's API, on transformers.

It serves one causal language model from the CPU, for machines without a GPU and for tests. Exit code 3: it could not
start, and one line on stderr says why.
"""

import argparse
import ctypes
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import uvicorn

from orchestrator.generation.app import build
from orchestrator.generation.engine import Engine
from orchestrator.generation.jobs import Job
from orchestrator.generation.loading import Served, StartupError, load
from orchestrator.generation.params import Sampling
from orchestrator.generation.serving import Service
from orchestrator.generation.text import Text
from orchestrator.generation.weights import WeightSession

STARTUP_FAILED = 3
# Longer than a training step: a client that keeps its connection must not find it closed at the next request.
KEEP_ALIVE_S = 600


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="orchestrator.generation.server", description=__doc__)
    parser.add_argument("--model", required=True, help="folder with config, safetensors weights and tokenizer")
    parser.add_argument("--served-model-name", help="name in /v1/models; default: --model as given")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="TCP port; 0 picks one, printed when ready")
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--max-model-len", type=int, help="most tokens of prompt and completion; default: the model's")
    parser.add_argument("--weights-dir", help="the only folder weights are read from; without it none are taken")
    parser.add_argument("--seed", type=int, default=0, help="for requests that bring no seed of their own")
    parser.add_argument("--max-batch-rows", type=int, default=512, help="most completions generated together")
    parser.add_argument("--max-logprobs", type=int, default=20, help="most likeliest tokens per position; -1: all")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal; returns the exit code."""
    options = parse(argv)
    _keep_freed_memory()
    try:
        _check(options)
        listener = _bind(options.host, options.port)
        served = load(options.model, dtype=options.dtype, max_model_len=options.max_model_len)
        engine = Engine(served.model, options.max_batch_rows)
        engine.start()
        _warm_up(engine, served)
        folder = Path(options.weights_dir).resolve() if options.weights_dir else None
        service = Service(
            served=served,
            engine=engine,
            text=Text(served.tokenizer),
            name=options.served_model_name or options.model,
            seed=options.seed,
            max_logprobs=options.max_logprobs,
        )
        _serve(build(service, WeightSession(served.model, folder)), engine, listener)
    except StartupError as error:
        print(f"generation server: {error}", file=sys.stderr)
        return STARTUP_FAILED
    return 0


def _keep_freed_memory() -> None:
    """Have malloc keep freed KV caches: handing them back to the kernel after every token costs a fifth of the time."""
    m_trim_threshold, m_mmap_threshold, m_arena_max = -1, -3, -8  # from glibc's malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc: slower, nothing else
        return
    for option, value in ((m_mmap_threshold, 32 * 2**20), (m_trim_threshold, 2**30), (m_arena_max, 1)):
        mallopt(option, value)


def _check(options: argparse.Namespace) -> None:
    """Raise StartupError for options that no server could run with."""
    if options.weights_dir and not Path(options.weights_dir).is_dir():
        raise StartupError(f"--weights-dir {options.weights_dir} is not a folder")
    if not 0 <= options.port <= 65535:
        raise StartupError(f"--port {options.port} is no TCP port")
    for name, least in (("max_model_len", 2), ("max_batch_rows", 1), ("max_logprobs", -1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise StartupError(f"--{name.replace('_', '-')} must be at least {least}, got {value}")


def _bind(host: str, port: int) -> socket.socket:
    """Take the port before the model loads, so that a taken one fails in milliseconds; clients are refused until ready.

    Raises StartupError.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        raise StartupError(f"cannot listen on {host}:{port}: {error}") from error
    return listener


def _warm_up(engine: Engine, served: Served) -> None:
    """Generate two tokens, so that the first request is as fast as the others and a model that cannot run says so.

    Raises StartupError.
    """
    job = Job(
        prompt=[0, 0],
        sampling=Sampling(max_tokens=min(2, served.max_model_len - 1)),
        seed=0,
        prompt_index=0,
        choices=range(2),
        stop_ids=(),
        prompt_top=0,
    )
    try:
        engine.submit([job])[0].result()
    except Exception as error:
        raise StartupError(f"{served.path} does not generate: {error}") from error
    engine.counters.reset()


class _Server(uvicorn.Server):
    """Says when it is ready, and cuts short what is under way when it stops, for which uvicorn would wait."""

    def __init__(self, config: uvicorn.Config, engine: Engine) -> None:
        super().__init__(config)
        self._engine = engine

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Only now does the port accept: whoever waits for this line can connect.
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            print(f"generation server: ready on {host}:{port}", file=sys.stderr, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._engine.stop()
        super().handle_exit(sig, frame)


def _serve(app: object, engine: Engine, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
        lifespan="off",
        server_header=False,
    )
    try:
        _Server(config, engine).run(sockets=[listener])
    except OSError as error:  # another process bound the port too, and listened first
        raise StartupError(f"cannot listen on {listener.getsockname()}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
