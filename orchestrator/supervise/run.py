"""Carries out a plan with real processes: puts the loop, the guardian, the signals and the record together."""

import os
import queue
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from orchestrator.exits import OK
from orchestrator.steps import Plan
from orchestrator.supervise import events as ev
from orchestrator.supervise.family import Family
from orchestrator.supervise.guard import Guard
from orchestrator.supervise.loop import Loop, step_views
from orchestrator.supervise.orphans import adopting_orphans
from orchestrator.supervise.outcome import Observer, Outcome, SilentObserver
from orchestrator.supervise.probing import ThreadProber, run_gate
from orchestrator.supervise.procs import identity_of, ticks_since_boot
from orchestrator.supervise.rundir import log_path, tail
from orchestrator.supervise.schedule import Schedule, plan_problems
from orchestrator.supervise.workers import ProcessReaper, ProcessSpawner
from orchestrator.supervise.world import Watch, World

GATE_TIMEOUT_S = 60.0
GUARDIAN_LOG = "_guardian"
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Postbox:
    """Events from threads and signal handlers. SimpleQueue.put may be called inside a handler, Queue.put may not."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
        self.signals: list[int] = []

    def post(self, event: ev.Event) -> None:
        self.queue.put(event)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)
        self.queue.put(ev.Signal(number))

    def get(self, timeout_s: float) -> ev.Event | None:
        try:
            return self.queue.get(timeout=timeout_s) if timeout_s > 0 else self.queue.get_nowait()
        except queue.Empty:
            return None


def run_plan(
    plan: Plan,
    run_dir: Path,
    *,
    gate: Callable[[], str | None],
    observer: Observer | None = None,
    watch: Watch | None = None,
    run_id: str | None = None,
    gate_timeout_s: float = GATE_TIMEOUT_S,
    extra_env: Mapping[str, str] | None = None,
    scratch: Path | None = None,
) -> Outcome:
    """Start the services, let `gate` judge them, run the tasks, take everything down. Main thread only.

    `gate` is called in a thread once all services are ready; it returns what is wrong, or None. Raises ValueError for
    a plan that cannot be carried out. `watch` raises alarms while the tasks run. Whatever else happens is told by the
    outcome, and no process is left behind. `scratch` is a folder that the guardian removes if this process is killed.
    """
    if problems := list(plan_problems(plan)):
        raise ValueError(f"plan {plan.name!r}: " + "; ".join(problems))
    box = Postbox()
    run_id = run_id or f"{run_dir.name}-{uuid.uuid4().hex}"
    schedule = Schedule(plan, gate_timeout_s, ask_every_s=watch.ask_every_s if watch else None)
    family = Family(run_id, identity_of(os.getpid()), since=ticks_since_boot())
    guard_log = log_path(run_dir, GUARDIAN_LOG)
    guardian = Guard(run_id, plan.stop_grace_s, family.since, guard_log, scratch)
    with signals_posted_to(box), adopting_orphans(), guardian as guard:
        spawner = ProcessSpawner(run_dir, family, guard, extra_env or {})
        reaper = ProcessReaper(family, guard, spawner)
        world = World(
            clock=time.monotonic,
            inbox=box,
            spawner=spawner,
            prober=ThreadProber(box.post, run_id),
            reaper=reaper,
            open_gate=lambda: threading.Thread(target=run_gate, args=(gate, box.post), daemon=True).start(),
            tail=lambda name: tail(log_path(run_dir, name)),
            observer=observer or SilentObserver(),
            watch=watch,
        )
        loop = Loop(schedule, world)
        loop.run()
        spawner.write_record(ended=True)
    return outcome_of(loop, run_dir, reaper.left, box.signals)


def outcome_of(loop: Loop, run_dir: Path, left: tuple[int, ...], signals: list[int]) -> Outcome:
    failure, views = loop.state.failure, step_views(loop.state, loop.state.phase_began)
    return Outcome(
        code=failure.code if failure else OK,
        failed=failure.step if failure else None,
        reason=failure.reason if failure else "",
        log_path=log_path(run_dir, failure.step) if failure and failure.step else None,
        log_tail=loop.log_tail,
        started=loop.state.started,
        seconds_by_step={name: view.seconds for name, view in views.items()},
        stop_s=loop.state.phase_began - loop.stopping_since,
        left=left,
        signalled=signals[-1] if signals else None,
    )


@contextmanager
def signals_posted_to(box: Postbox) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP become events; afterwards they mean what they meant before."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    # nohup has SIGHUP ignored on purpose: the run is to outlive its terminal.
    taken = [number for number in HANDLED if number != signal.SIGHUP or before[number] is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, box.on_signal)
    try:
        yield
    finally:
        for number in taken:
            handler = before[number]
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
