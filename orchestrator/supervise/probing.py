"""What waits for others, in threads, so that the loop never does: probes and the gate."""

import threading
from collections.abc import Callable

from orchestrator.steps import Step
from orchestrator.supervise import events as ev
from orchestrator.supervise.health import Unhealthy, owns_port, probe

Post = Callable[[ev.Event], None]


class ThreadProber:
    """One short-lived thread per attempt: a probe may hang for its whole timeout."""

    def __init__(self, post: Post, run_id: str) -> None:
        self.post = post
        self.run_id = run_id

    def probe(self, step: Step, pid: int) -> None:
        threading.Thread(target=self._attempt, args=(step, pid), daemon=True).start()

    def ask(self, step: Step, pid: int) -> None:
        threading.Thread(target=self._attempt, args=(step, pid, False), daemon=True).start()

    def _attempt(self, step: Step, pid: int, whose: bool = True) -> None:
        try:
            event = judge(step, pid, self.run_id, whose=whose)
        except Exception as error:
            # An attempt that posts nothing would be the last one.
            event = ev.ProbeFailed(step.name, pid, f"{type(error).__name__}: {error}")
        self.post(event)


def judge(step: Step, pid: int, run_id: str, *, whose: bool = True) -> ev.Event:
    """Whether the step may be used: it answers, and (`whose`) what answers is the process that was started."""
    if step.ready is None:
        return ev.Ready(step.name, pid)
    answer = probe(step.ready)
    if isinstance(answer, Unhealthy):
        return ev.ProbeFailed(step.name, pid, answer.reason)
    owner = True if step.port is None or not whose else owns_port(pid, step.port, step.host, run_id)
    if owner is True:
        return ev.Ready(step.name, pid)
    if owner is False:
        return ev.ProbeFailed(step.name, pid, f"{step.ready.url} answers, but nobody listens on port {step.port}")
    return ev.Impostor(step.name, pid, f"port {step.port} is served by {owner}, which this run did not start")


def run_gate(gate: Callable[[], str | None], post: Post) -> None:
    """Call the gate; an exception is a failure too."""
    try:
        problem = gate()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    post(ev.GatePassed() if problem is None else ev.GateFailed(problem))
