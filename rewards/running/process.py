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
from rewards.running.output import stderr
from rewards.running.progress import Progress, shared_file
from rewards.running.wire import ReplyDecoder, encode_command

WORKER_ARGV = (sys.executable, "-P", "-m", "rewards.running.worker")
TAIL_BYTES = 4000  # of a worker's stderr, for the error that says why it ended
STDOUT = 1
EXIT_LIMIT_S = 1.0  # after a kill, or the end of the pipe
DRAIN_S = 0.1  # after the end of the process, for the replies that are in the pipe

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
        self._closing = False
        self._broken = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == STDOUT:
            self._take(data)
        else:
            self._tail = (self._tail + data)[-TAIL_BYTES:]
            stderr.write(data)  # what user code prints belongs in the service's log

    def _take(self, data: bytes) -> None:
        try:
            for reply in self._decoder.feed(data):
                self._replies.put_nowait(reply)
        except ValueError as error:  # user code has written to the pipe: whatever follows cannot be told apart
            self._broken = f"the worker sent what is no reply: {error}"
            self.kill()
            self._replies.put_nowait(None)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == STDOUT:
            self.usable = False
            self._replies.put_nowait(None)

    def process_exited(self) -> None:
        self._kill_group()  # children of user code would keep the pipe open, and us waiting for its end
        self.usable = False
        self.exited.set()
        if self._transport is not None and self._closing:
            self._transport.close()
        else:  # a child with a session of its own may keep the pipe open: what is in it is read by then
            asyncio.get_running_loop().call_later(DRAIN_S, self._replies.put_nowait, None)

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
        """Kill and let go of the pipes, once it has ended: before, asyncio takes the exit code from its own watcher."""
        self.kill()
        self._closing = True
        if self._transport is not None and self.exited.is_set():
            self._transport.close()

    async def closed(self) -> None:
        """close(), and wait for the end; not for ever, as a process in the kernel's hands may take its time."""
        self.close()
        ending = asyncio.create_task(self._exit())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:  # whoever cancels us would close the loop under asyncio's own watcher
            await ending
            raise

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def _exit(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_LIMIT_S):  # not wait_for, which may swallow a cancellation
                await self.exited.wait()

    async def _last_words(self) -> str:
        if self._broken:
            return self._broken
        await self._exit()  # the exit code may come a moment after the end of the pipe
        code = self._transport.get_returncode() if self._transport else None
        if code is None:
            how = "closed its pipe to the pool"
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
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
    try:
        worker = await _spawn(hidden)
    except OSError as error:
        raise WorkerStartError(f"a worker cannot be started: {error}") from error
    started = False
    try:
        worker.send({"specs": [asdict(spec) for spec in specs]})
        answer = await worker.receive(limit_s)
        if "fatal" in answer:
            raise WorkerStartError(answer["fatal"])
        functions = tuple(FunctionInfo.from_wire(raw) for raw in answer["ready"])
        started = True
    except TimeoutError:
        words = f"; its last output: {worker.last_output}" if worker.last_output else ""
        raise WorkerStartError(f"a worker did not start within {limit_s:g} s{words}") from None
    except WorkerDiedError as error:
        raise WorkerStartError(f"a worker did not start: {error}") from None
    except (TypeError, KeyError) as error:
        raise WorkerStartError(f"a worker sent what is no list of functions: {error!r}") from None
    finally:
        if not started:
            await worker.closed()
    return worker, functions


async def _spawn(hidden: Collection[str]) -> WorkerProcess:
    fd = shared_file()
    try:
        _, worker = await asyncio.get_running_loop().subprocess_exec(
            partial(WorkerProcess, Progress(fd)),
            *WORKER_ARGV,
            str(fd),
            env=worker_env(hidden),
            pass_fds=(fd,),
            start_new_session=True,
        )
    finally:
        os.close(fd)
    return worker
