"""One worker process, seen from the pool: start, send, receive with a deadline, kill."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

from rewards.calling.describe import FunctionInfo
from rewards.contract import FunctionSpec
from rewards.running.progress import Progress, shared_file
from rewards.running.wire import ReplyDecoder, encode_command

WORKER_ARGV = (sys.executable, "-P", "-m", "rewards.running.worker")
TAIL_BYTES = 4000  # of a worker's stderr, for the error that says why it ended
STDOUT, STDERR = 1, 2

# The workers are the parallelism: without this, each of them opens a thread per core for every small matrix.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "BLIS_NUM_THREADS"), "1"
)


class WorkerStartError(Exception):
    """A worker could not be started: bad function, crash, or no answer before the deadline."""


class WorkerDiedError(Exception):
    """A worker ended while it owed replies."""


class WorkerProcess(asyncio.SubprocessProtocol):
    """Talks wire.py with worker.py. Its session is its own, so that kill() also ends what user code started."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.exited = asyncio.Event()
        self.usable = True
        self._replies: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._decoder = ReplyDecoder()
        self._tail = bytearray()
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == STDOUT:
            for reply in self._decoder.feed(data):
                self._replies.put_nowait(reply)
        else:
            self._tail = (self._tail + data)[-TAIL_BYTES:]
            with contextlib.suppress(OSError):  # what user code prints belongs in the service's log
                os.write(STDERR, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == STDOUT:
            self.usable = False
            self._replies.put_nowait(None)

    def process_exited(self) -> None:
        self._kill_group()  # children of user code would keep the pipe open, and us waiting for its end
        self.usable = False
        self.exited.set()

    @property
    def last_output(self) -> str:
        return self._tail.decode(errors="replace").strip()

    @property
    def pid(self) -> int:
        assert self._transport is not None  # noqa: S101  set before any method can be called
        return self._transport.get_pid()

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a command; never blocks. A dead worker's pipe swallows it: receive() then says so."""
        assert self._transport is not None  # noqa: S101
        pipe = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        pipe.write(encode_command(dict(message)))

    async def receive(self, within_s: float) -> dict[str, Any]:
        """The next reply. Raises TimeoutError after `within_s` seconds, WorkerDiedError when none can come."""
        try:
            reply = self._replies.get_nowait()
        except asyncio.QueueEmpty:
            async with asyncio.timeout(within_s):
                reply = await self._replies.get()
        if reply is None:
            raise WorkerDiedError(await self._last_words())
        return reply

    def kill(self) -> None:
        self.usable = False
        if not self.exited.is_set():
            self._kill_group()

    def close(self) -> None:
        """Kill and let go of the pipes."""
        self.kill()
        if self._transport is not None:
            self._transport.close()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def _last_words(self) -> str:
        with contextlib.suppress(TimeoutError):  # the exit code may come a moment after the end of the pipe
            await asyncio.wait_for(self.exited.wait(), 1.0)
        code = self._transport.get_returncode() if self._transport else None
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
        return f"the worker {how}" + (f"; its last output: {self.last_output}" if self.last_output else "")


def worker_env(hidden: Collection[str]) -> dict[str, str]:
    """Our environment without `hidden` names, with one thread per library, and with this package to be found."""
    env = {name: value for name, value in os.environ.items() if name not in hidden} | ONE_THREAD
    root = Path(__file__).resolve().parents[2]
    if root.name not in ("site-packages", "dist-packages"):  # run from a checkout
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (env.get("PYTHONPATH"), str(root))))
    return env


async def start_worker(
    specs: Sequence[FunctionSpec], hidden: Collection[str], limit_s: float
) -> tuple[WorkerProcess, tuple[FunctionInfo, ...]]:
    """A worker that has loaded and self-tested the functions. Raises WorkerStartError."""
    loop = asyncio.get_running_loop()
    fd = shared_file()
    try:
        _, worker = await loop.subprocess_exec(
            partial(WorkerProcess, Progress(fd)),
            *WORKER_ARGV,
            str(fd),
            env=worker_env(hidden),
            pass_fds=(fd,),
            start_new_session=True,
        )
    finally:
        os.close(fd)
    try:
        worker.send({"specs": [asdict(spec) for spec in specs]})
        answer = await worker.receive(limit_s)
    except TimeoutError:
        worker.close()
        words = f"; its last output: {worker.last_output}" if worker.last_output else ""
        raise WorkerStartError(f"a worker did not start within {limit_s:g} s{words}") from None
    except WorkerDiedError as error:
        worker.close()
        raise WorkerStartError(f"a worker did not start: {error}") from None
    except BaseException:
        worker.close()
        raise
    if "fatal" in answer:
        worker.close()
        raise WorkerStartError(answer["fatal"])
    return worker, tuple(FunctionInfo.from_wire(raw) for raw in answer["ready"])
