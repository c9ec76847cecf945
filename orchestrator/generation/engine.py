"""One worker thread owns the model: between two tokens it takes in what waits, and hands out what is complete."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch

from orchestrator.generation.batch import Batch
from orchestrator.generation.errors import ApiError
from orchestrator.generation.jobs import Counters, Flight, Job, Output, Pending, Row
from orchestrator.generation.score import prompt_scores

PauseMode = Literal["abort", "wait", "keep"]
Result = TypeVar("Result")


@dataclass
class Engine:
    """Thread-safe front of the worker thread.

    Jobs are taken in as they come, in order, between any two tokens while the rows in all stay within
    `max_batch_rows`; a call waits until no row is under way, and jobs that come after it wait for the call.
    """

    model: Any
    max_batch_rows: int
    counters: Counters = field(default_factory=Counters)
    paused: PauseMode | None = None
    _jobs: deque[Pending] = field(default_factory=deque)
    _under_way: dict[Flight, Pending] = field(default_factory=dict)
    _unwanted: set[Future[Output]] = field(default_factory=set)
    _calls: deque[Callable[[], None]] = field(default_factory=deque)
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _stopping: bool = False
    _refill: bool = False

    def __post_init__(self) -> None:
        self._batch = Batch(self.model)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="generation", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the worker to end; what is in flight or waits is answered as aborted. Safe in a signal handler."""
        self._stopping = True
        # The handler may interrupt a holder of the lock on this very thread, so it must not wait for it.
        threading.Thread(target=self._notify, daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    def submit(self, jobs: Sequence[Job]) -> list[Future[Output]]:
        """Queue jobs; each has at most `max_batch_rows` choices."""
        pending = [Pending(job, Future()) for job in jobs]
        with self._wake:
            if self._stopping:
                raise ApiError("the server is shutting down", status=503)
            self._jobs.extend(pending)
            self._wake.notify()
        return [entry.future for entry in pending]

    def abandon(self, futures: Sequence[Future[Output]]) -> None:
        """Nobody waits for these any more: what has not begun never does, rows under way leave with the next token."""
        for future in futures:
            if not future.cancel() and not future.done():
                self._unwanted.add(future)

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Run `function` on the worker thread while nothing is generated: no row is under way, or all are frozen."""
        future: Future[Result] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        with self._wake:
            if self._stopping:
                raise ApiError("the server is shutting down", status=503)
            self._calls.append(run)
            self._wake.notify()
        return future

    def change_weights(self, function: Callable[[], Result]) -> Future[Result]:
        """As `call`; frozen rows then read their tokens again, since their cache belongs to the old weights."""

        def change() -> Result:
            result = function()
            self._refill = True
            return result

        return self.call(change)

    def pause(self, mode: PauseMode) -> Future[None]:
        """Start nothing new. What is in flight is aborted, finished, or frozen ("keep"); done when that holds."""
        with self._wake:
            self.paused = mode
            self._wake.notify()
        return self.call(self._abort_waiting if mode == "abort" else lambda: None)

    def resume(self) -> None:
        with self._wake:
            self.paused = None
            self._wake.notify()

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    def _work(self) -> None:
        with torch.inference_mode():
            while not self._stopping:
                self._turn()
        self._abort_under_way()
        self._run_calls()
        self._abort_waiting()

    def _turn(self) -> None:
        """Wait for something to do, and do it: calls, or one token for every row."""
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._may_call() or self._may_generate())
            paused = self.paused
        if self._stopping:
            return
        if paused == "abort":
            self._abort_under_way()
        if self._may_call():
            self._run_calls()
        elif paused != "keep":
            self._generate()

    def _may_call(self) -> bool:
        return bool(self._calls) and (self.paused == "keep" or not self._under_way)

    def _may_generate(self) -> bool:
        return (bool(self._under_way) and self.paused != "keep") or (bool(self._jobs) and not self.paused)

    def _run_calls(self) -> None:
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def _generate(self) -> None:
        try:
            refill, self._refill = self._refill, False
            if refill:
                self._batch.refill()
            else:
                self._batch.advance()
            self._admit(self._take())
            self._end_unwanted()
            for flight in self._batch.draw():
                self._deliver(flight)
        except Exception as error:  # the requests under way fail with it, the server lives on
            for flight in self._batch.clear():
                self._under_way.pop(flight).future.set_exception(error)

    def _take(self) -> list[Pending]:
        """Jobs from the front of the queue that still find room; none while a call waits for the rows to end."""
        taken: list[Pending] = []
        room = self.max_batch_rows - self._batch.num_rows
        with self._wake:
            while self._jobs and not self.paused and not self._calls:
                room -= len(self._jobs[0].job.choices)
                if room < 0 and (taken or self._under_way):
                    break
                taken.append(self._jobs.popleft())
        return [entry for entry in taken if entry.future.set_running_or_notify_cancel()]

    def _admit(self, taken: list[Pending]) -> None:
        if not taken:
            return
        scored = [entry for entry in taken if entry.job.prompt_top is not None]
        prompts = [entry.job.prompt for entry in scored]
        try:
            scores = prompt_scores(self.model, prompts, [entry.job.prompt_top or 0 for entry in scored])
            flights = self._batch.admit([entry.job for entry in taken])
        except Exception as error:  # only those that were to join
            for entry in taken:
                entry.future.set_exception(error)
            return
        for entry, found in zip(scored, scores, strict=True):
            entry.scores = found
        self._under_way.update(zip(flights, taken, strict=True))
        self.counters.batches += 1

    def _end_unwanted(self) -> None:
        """The rows of clients that have gone leave with the next token."""
        self._unwanted.intersection_update([entry.future for entry in self._under_way.values()])
        for flight, entry in self._under_way.items():
            if entry.future in self._unwanted:
                for row in flight.rows:
                    row.ended = True

    def _deliver(self, flight: Flight) -> None:
        rows = [row.row() for row in flight.rows]
        self.counters.sequences += len(rows)
        self.counters.tokens += sum(len(row.token_ids) for row in rows)
        entry = self._under_way.pop(flight)
        self._unwanted.discard(entry.future)
        entry.future.set_result(Output(rows, entry.scores))

    def _abort_under_way(self) -> None:
        for flight in self._batch.clear():
            self._deliver(flight)

    def _abort_waiting(self) -> None:
        with self._wake:
            waiting, self._jobs = self._jobs, deque()
        for entry in waiting:
            if not entry.future.set_running_or_notify_cancel():
                continue
            rows = [Row([], [], "abort", []) for _ in entry.job.choices]
            entry.future.set_result(Output(rows, None))
