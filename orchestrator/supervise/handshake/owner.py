"""Whose process it is that answers, before and after the questions.

A successful bind proves nothing: with SO_REUSEPORT two servers listen on one port, and the kernel deals connections out
to both.
"""

import os
from dataclasses import dataclass

from orchestrator.addresses import ANY_ADDRESS, LOOPBACK, host_of, port_of
from orchestrator.supervise.handshake.interview import Interview
from orchestrator.supervise.health import owns_port
from orchestrator.supervise.ports import port_owners

STALE = "The process that answers is not the one that was started: a stale server of another run, or a second one."


@dataclass(frozen=True, kw_only=True)
class Child:
    """A service of this run, as processes.json has it."""

    pid: int
    port: int
    host: str
    """The address that it binds."""
    run_id: str


def is_ours(talk: Interview, child: Child | None, when: str) -> bool:
    """Compare who listens with who was started; False when every further answer would be somebody else's."""
    if child is None:
        talk.fail(
            "process",
            "this run has no record of having started it.",
            why=STALE,
            fix="orchestrate stop RUN, then start the run again",
        )
        return False
    owner = owns_port(child.pid, child.port, child.host, child.run_id)
    said = f"pid {child.pid} or below" if owner is True else "nobody" if owner is False else str(owner)
    talk.compare(
        f"who listens on port {child.port} ({when} the questions)",
        f"pid {child.pid} or below",
        said,
        why=STALE if owner is not False else "It has stopped listening since it was ready.",
        fix="end the other process, or give the service another port (auto picks a free one)"
        if owner is not False
        else "look at its log",
    )
    return owner is True


def listeners(url: str) -> tuple[int, ...]:
    """Processes of this user and machine that listen where `url` points; () where that cannot be seen."""
    port = port_of(url)
    if host_of(url) not in (*LOOPBACK, *ANY_ADDRESS) or not isinstance(port, int):
        return ()
    return tuple(owner.pid for owner in port_owners(port, host_of(url)) if owner.pid and owner.pid != os.getpid())


def is_the_same(talk: Interview, before: tuple[int, ...]) -> None:
    """Of a server that somebody else runs: it did not change hands between the questions."""
    if not before:
        talk.skip("who listens", "the process is not visible from here (another machine, user or container)")
        return
    talk.compare(
        "who listens (before and after the questions)",
        before,
        listeners(talk.url),
        why="Some answers are one server's, some another's.",
        fix="wait until its restarts are over, and see that only one server listens there",
    )
