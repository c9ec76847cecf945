"""A worker process: loads the functions, then scores the units it is sent. The pool starts it.

`python -P -m rewards.running.worker FD`; FD is the file of progress.py. Messages (wire.py) go over what was stdin and
stdout:
  in   {"specs": [...]}                                             once
  out  {"ready": [FunctionInfo...]} or {"fatal": message}           once
  in   {"message": number, "limit_s": s, "parts": [{"function", "batch", "indices", "sizes"}]}
       `batch` holds the samples of all units of a part, unit after unit; `sizes` has their counts.
  out  {"message": number, "part": p, "units": [...], "values", "logs", "failures", "failed", "seconds"}
       until every unit is in one: units in the order in which they ended, their samples' values as one list, logs
       likewise; `failed` has indices; `seconds` of the whole part stand in its last message, null for async functions.
"""

import asyncio
import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any, BinaryIO

from rewards.batch import Batch
from rewards.calling.adapters import Bound, bind
from rewards.calling.describe import describe
from rewards.calling.loading import LoadError
from rewards.contract import FunctionSpec, text_of_error
from rewards.running.execute import run_async_unit, run_sync_unit
from rewards.running.progress import BETWEEN_UNITS, Progress
from rewards.running.replies import Replies
from rewards.running.wire import encode_reply, read_command

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
    while (command := read_command(commands)) is not None:
        inbox.put(command)
    os._exit(0)


def disown(pipes: Sequence[int], progress: Progress) -> None:
    """In a child that user code forks: it has nothing to say to the pool, and must not keep the pipes open."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in pipes:
        os.dup2(null, fd, inheritable=False)
    os.close(null)
    progress.disown()


def stop_timer() -> None:
    """An alarm that a function has left behind would strike another's sample."""
    signal.alarm(0)  # setitimer's too: they are one timer


class Part:
    """Units of one function from one request. `first` is the number of its first unit in the message."""

    def __init__(self, bound: Bound, first: int, raw: dict[str, Any]) -> None:
        self.bound, self.first = bound, first
        self.indices: Sequence[int] = raw["indices"]
        self.sizes: Sequence[int] = raw["sizes"]
        self.batch = Batch(**raw["batch"])
        self._ends = list(accumulate(self.sizes))

    def unit(self, number: int) -> tuple[Batch, Sequence[int]]:
        """The samples of a unit, and their places in the request."""
        if len(self.sizes) == 1:
            return self.batch, self.indices
        start, stop = self._ends[number] - self.sizes[number], self._ends[number]
        return self.batch.cut(start, stop), self.indices[start:stop]


class Worker:
    """The functions of this process, where their results go, and what it says about itself meanwhile."""

    def __init__(self, functions: dict[str, Bound], replies: BinaryIO, progress: Progress) -> None:
        self.functions, self.replies, self.progress = functions, Replies(replies), progress
        # One loop for the process's life: users keep HTTP sessions, which belong to the loop that opened them.
        self.runner = asyncio.Runner()

    def run(self, command: dict[str, Any]) -> None:
        parts, first = [], 0
        for raw in command["parts"]:
            parts.append(Part(self.functions[raw["function"]], first, raw))
            first += len(raw["sizes"])
        self.replies.begin(command["message"])
        self.progress.begin(command["message"])
        if parts[0].bound.signature.is_async:  # the pool puts them in messages of their own
            self.runner.run(self._side_by_side(parts, command["limit_s"]))
        else:
            for at, part in enumerate(parts):
                self._one_by_one(at, part)
        self.progress.enter(BETWEEN_UNITS)
        stop_timer()
        self.replies.flush()

    def _one_by_one(self, at: int, part: Part) -> None:
        began = time.monotonic()
        for number in range(len(part.sizes)):
            self.replies.flush_if_due()
            self.progress.enter(part.first + number)
            batch, indices = part.unit(number)
            result = run_sync_unit(part.bound, batch, indices)
            stop_timer()
            self.replies.add(at, number, indices, result)
        self.replies.took(at, time.monotonic() - began)

    async def _side_by_side(self, parts: Sequence[Part], limit_s: float) -> None:
        async def one(at: int, part: Part, number: int) -> None:
            batch, indices = part.unit(number)
            watch = partial(self.progress.watch, part.first + number)
            self.replies.add(at, number, indices, await run_async_unit(part.bound, batch, indices, limit_s, watch))
            self.replies.flush_soon(asyncio.get_running_loop())

        await asyncio.gather(*(one(at, part, n) for at, part in enumerate(parts) for n in range(len(part.sizes))))


def main() -> int:
    commands, replies = private_pipes()
    die_with_parent()
    fd = int(sys.argv[1])
    progress = Progress(fd)
    os.close(fd)
    os.register_at_fork(after_in_child=partial(disown, (commands.fileno(), replies.fileno()), progress))
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=receive_forever, args=(commands, inbox), daemon=True).start()
    specs = [FunctionSpec(**raw) for raw in inbox.get()["specs"]]
    answer: dict[str, Any]
    try:
        functions = {spec.name: bind(spec) for spec in specs}
        answer = {"ready": [describe(bound).to_wire() for bound in functions.values()]}
    except LoadError as error:
        answer = {"fatal": text_of_error(error)}
    replies.write(encode_reply(answer))
    replies.flush()
    if "fatal" in answer:
        return 3
    worker = Worker(functions, replies, progress)
    while True:
        worker.run(inbox.get())


if __name__ == "__main__":
    sys.exit(main())
