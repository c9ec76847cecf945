"""What the services say about themselves against what the recipe means, before any training step.

Each comparison is a Fact: what was meant, what was said, by whom, why it matters, how to mend it. All are recorded in
handshake.json (docs/handshake.md); what nobody could tell is recorded as skipped. If any fact differs, the run ends
before the trainer starts, and every difference is shown at once.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.facts import Facts
from orchestrator.kinds import STARTED_REWARD, generation_kind
from orchestrator.paths import RunPaths
from orchestrator.schema import RunConfig
from orchestrator.supervise.handshake import owner
from orchestrator.supervise.handshake.generation import ask_generation
from orchestrator.supervise.handshake.interview import Interview, Verdict, record, verdict
from orchestrator.supervise.handshake.owner import Child
from orchestrator.supervise.handshake.reward import ask_reward
from orchestrator.supervise.record import RunRecord, read_record
from orchestrator.supervise.rundir import log_path, write_json

__all__ = ["DEADLINE_S", "Verdict", "handshake"]

DEADLINE_S = 50.0
"""For all questions together; less than the supervisor gives its gate, so that what is known by then gets out."""

Questions = Callable[[Interview, RunConfig, Facts], None]


@dataclass(frozen=True, kw_only=True)
class _Service:
    talk: Interview
    ask: Questions
    child: Child | None


def handshake(run: RunConfig, run_dir: Path, facts: Facts, *, deadline_s: float = DEADLINE_S) -> Verdict:
    """Ask every service, side by side, and write handshake.json. Takes `deadline_s` at most."""
    began = time.monotonic()
    services = _services(run, run_dir)
    threads = [threading.Thread(target=_question, args=(one, run, facts), daemon=True) for one in services]
    for thread in threads:
        thread.start()
    for one, thread in zip(services, threads, strict=True):
        thread.join(max(0.0, began + deadline_s - time.monotonic()))
        if thread.is_alive():
            one.talk.fail(
                "deadline",
                f"{one.talk.url} did not finish answering within {deadline_s:g} s; asked last: {one.talk.asking}.",
                fix="look at its log: it answers too slowly to train with, or hangs",
            )
    talks = [one.talk for one in services]
    path = RunPaths(run_dir=run_dir).handshake
    write_json(path, record(talks, time.monotonic() - began))
    return verdict(talks, path)


def _question(service: _Service, run: RunConfig, facts: Facts) -> None:
    """One service, from the question whose process it is to that same question again."""
    talk = service.talk
    try:
        talk.asking = "who listens"
        before = () if talk.started else owner.listeners(talk.url)
        if talk.started and not owner.is_ours(talk, service.child, "before"):
            return
        if len(before) == 1:
            talk.pid = before[0]
        service.ask(talk, run, facts)
        talk.asking = "who listens"
        if talk.started:
            owner.is_ours(talk, service.child, "after")
        elif not any(fact.name.endswith(": server") for fact in talk.facts):
            owner.is_the_same(talk, before)
    except Exception as error:
        # A thread that dies in silence would pass for agreement.
        talk.fail(
            "questions", f"they ended in {type(error).__name__}: {error}.", fix="report it with the log of the run"
        )


def _services(run: RunConfig, run_dir: Path) -> list[_Service]:
    """The services that the run talks to; none where the trainer does it by itself."""
    found = read_record(run_dir)
    services = []
    if run.reward.kind != "inprocess":
        talk = Interview(
            service="reward", kind=run.reward.kind, url=run.reward.url, started=run.reward.kind == STARTED_REWARD
        )
        services.append(_service(talk, ask_reward, run.reward.host, found, run_dir))
    kind = generation_kind(run.generation)
    if kind.server:
        talk = Interview(service="generation", kind=run.generation.kind, url=run.generation.url, started=kind.started)
        services.append(_service(talk, ask_generation, run.generation.host, found, run_dir))
    return services


def _service(talk: Interview, ask: Questions, host: str, found: RunRecord | None, run_dir: Path) -> _Service:
    step = next((one for one in found.processes if one.name == talk.service), None) if found else None
    if not talk.started or found is None or step is None or step.port is None:
        return _Service(talk=talk, ask=ask, child=None)
    talk.pid, talk.log = step.pid, log_path(run_dir, talk.service)
    return _Service(talk=talk, ask=ask, child=Child(pid=step.pid, port=step.port, host=host, run_id=found.run_id))
