"""A worker process: loads the functions, then scores the units it is sent. `python -P -m rewards.worker`, by the pool.

Protocol (wire.py), over the pipes that were stdin and stdout:
  in   {"specs": [...]}                                             once
  out  {"ready": [FunctionInfo...]} or {"fatal": message}           once
  in   {"function": name, "limit_s": s, "units": [{"unit", "indices", "batch"}]}
  out  {"begun": true}, then one {"unit": n, "result": UnitResult} per unit, in order (async functions: as they end)
"""

import asyncio
import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO

from rewards.adapters import Bound, bind
from rewards.batch import Batch
from rewards.contract import FunctionSpec
from rewards.describe import describe
from rewards.execute import UnitResult, run_async_unit, run_sync_unit
from rewards.loading import LoadError
from rewards.wire import encode, read_message

PR_SET_PDEATHSIG = 1


def private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the protocol away from fds 0 and 1: print() then goes to stderr, and input() finds an empty stdin.

    The duplicates are not inherited by processes that user code starts.
    """
    commands, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # else prints are lost at a kill
    return commands, replies


def die_with_parent() -> None:
    """For code that holds the GIL, where the thread below cannot run. Linux only; elsewhere that thread must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def receive_forever(commands: BinaryIO, inbox: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Reads also while user code runs, so that the end of the pipe, which is the parent's end, ends us at once."""
    while (message := read_message(commands)) is not None:
        inbox.put(message)
    os._exit(0)


class Worker:
    """The functions of this process and the pipe that their results go to."""

    def __init__(self, functions: dict[str, Bound], replies: BinaryIO) -> None:
        self.functions = functions
        self.replies = replies
        # One loop for the process's life: users keep HTTP sessions, which belong to the loop that opened them.
        self.runner = asyncio.Runner()

    def send(self, message: dict[str, Any]) -> None:
        self.replies.write(encode(message))
        self.replies.flush()

    def run(self, job: dict[str, Any]) -> None:
        bound = self.functions[job["function"]]
        units = [(u["unit"], tuple(u["indices"]), Batch(**u["batch"])) for u in job["units"]]
        self.send({"begun": True})
        if bound.signature.is_async:
            self.runner.run(self._run_together(bound, units, job["limit_s"]))
            return
        for number, indices, batch in units:
            self._reply(number, run_sync_unit(bound, batch, indices))

    async def _run_together(
        self, bound: Bound, units: list[tuple[int, tuple[int, ...], Batch]], limit_s: float
    ) -> None:
        async def one(number: int, indices: tuple[int, ...], batch: Batch) -> None:
            self._reply(number, await run_async_unit(bound, batch, indices, limit_s))

        await asyncio.gather(*(one(*unit) for unit in units))

    def _reply(self, number: int, result: UnitResult) -> None:
        self.send({"unit": number, "result": result.to_wire()})


def main() -> int:
    commands, replies = private_pipes()
    die_with_parent()
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=receive_forever, args=(commands, inbox), daemon=True).start()
    specs = [FunctionSpec(**raw) for raw in inbox.get()["specs"]]
    try:
        functions = {spec.name: bind(spec) for spec in specs}
        ready = [describe(bound).to_wire() for bound in functions.values()]
    except LoadError as error:
        replies.write(encode({"fatal": str(error)}))
        replies.flush()
        return 3
    worker = Worker(functions, replies)
    worker.send({"ready": ready})
    while True:
        worker.run(inbox.get())


if __name__ == "__main__":
    sys.exit(main())
