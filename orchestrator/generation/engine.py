"""One worker thread owns the model: it batches the requests that wait together and runs everything else in between."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch

from orchestrator.generation import batch
from orchestrator.generation.batch import Job, Row, Signal
from orchestrator.generation.errors import ApiError
from orchestrator.generation.score import PromptScores, prompt_scores

PauseMode = Literal["abort", "wait", "keep"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Output:
    """What became of a job: its completions, and the scores of its prompt where they were asked for."""

    rows: list[Row]
    scores: PromptScores | None


@dataclass(frozen=True)
class Pending:
    job: Job
    future: Future[Output]


@dataclass
class Counters:
    """Since the start; written by the worker thread only."""

    batches: int = 0
    sequences: int = 0
    tokens: int = 0

    def reset(self) -> None:
        self.batches = self.sequences = self.tokens = 0


@dataclass
class Engine:
    """Thread-safe front of the worker thread."""

    model: Any
    max_batch_rows: int
    counters: Counters = field(default_factory=Counters)
    paused: PauseMode | None = None
    _jobs: deque[Pending] = field(default_factory=deque)
    _calls: deque[Callable[[], None]] = field(default_factory=deque)
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _stopping: bool = False
    _refill: bool = False

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

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Run `function` on the worker thread while nothing is generated: between batches, or in a frozen batch."""
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
        """As `call`; a frozen batch then reads its tokens again, since its cache belongs to the old weights."""

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
                pending = self._next()
                if pending:
                    self._generate(pending)
        self._run_calls()
        self._abort_waiting()

    def _next(self) -> list[Pending]:
        """Wait for work; run calls at once, return a batch of jobs otherwise."""
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._calls or (self._jobs and not self.paused))
        if self._run_calls() or self._stopping:
            return []
        return self._take()

    def _run_calls(self) -> bool:
        calls = len(self._calls)
        for _ in range(calls):
            self._calls.popleft()()
        return calls > 0

    def _take(self) -> list[Pending]:
        taken: list[Pending] = []
        rows = 0
        with self._wake:
            while self._jobs and not self.paused:
                rows += len(self._jobs[0].job.choices)
                if taken and rows > self.max_batch_rows:
                    break
                taken.append(self._jobs.popleft())
        # From here on a client that went away cannot cancel: its job fails or completes with the others.
        return [entry for entry in taken if entry.future.set_running_or_notify_cancel()]

    def _generate(self, pending: list[Pending]) -> None:
        self._refill = False
        try:
            scores = self._scores(pending)

            def deliver(index: int, rows: list[Row]) -> None:
                self.counters.sequences += len(rows)
                self.counters.tokens += sum(len(row.token_ids) for row in rows)
                pending[index].future.set_result(Output(rows, scores.get(index)))

            batch.generate(self.model, [entry.job for entry in pending], self._between_tokens, deliver)
            self.counters.batches += 1
        except Exception as error:  # the requests fail with it, the server lives on
            for entry in pending:
                if not entry.future.done():
                    entry.future.set_exception(error)

    def _scores(self, pending: list[Pending]) -> dict[int, PromptScores]:
        wanted = [i for i, entry in enumerate(pending) if entry.job.prompt_top is not None]
        if not wanted:
            return {}
        prompts = [pending[i].job.prompt for i in wanted]
        top = [pending[i].job.prompt_top or 0 for i in wanted]
        return dict(zip(wanted, prompt_scores(self.model, prompts, top), strict=True))

    def _between_tokens(self) -> Signal:
        while self.paused == "keep" and not self._stopping:
            self._run_calls()
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._calls or self.paused != "keep")
        if self._stopping or self.paused == "abort":
            return Signal.ABORT
        refill, self._refill = self._refill, False
        return Signal.REFILL if refill else Signal.CONTINUE

    def _abort_waiting(self) -> None:
        with self._wake:
            waiting, self._jobs = self._jobs, deque()
        for entry in waiting:
            if not entry.future.set_running_or_notify_cancel():
                continue
            rows = [Row([], [], "abort", []) for _ in entry.job.choices]
            entry.future.set_result(Output(rows, None))
