"""The bare interpreter in the namespaces: forks one supervisor, and that one inmate, per request.

Request, on a SOCK_SEQPACKET socket: JSON {"role", "limits", "filtered"} with descriptors: first the run's control
socket, then those of the role. Answer, on the control socket: one JSON object, then its end:
{"exit": code} | {"signal": number} | {"timeout": true} | {"ended": true} (by the other side) | {"setup": reason}.
"""

import gc
import importlib
import itertools
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from rewards.sandbox import kernel
from rewards.sandbox.confine import Limits, change_root, enter_namespaces, install_filter, lock_in
from rewards.sandbox.judge import judge
from rewards.sandbox.solution import run_script, serve

# What solutions import most; loaded once, so that no run pays for it.
PRELOADED = (
    *("bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "itertools"),
    *("math", "operator", "random", "re", "statistics", "string", "threading", "typing"),
)
ROLES: dict[str, Callable[..., int]] = {"script": run_script, "solution": serve, "judge": judge}
LARGEST_REQUEST, MOST_DESCRIPTORS = 1 << 16, 8
GO = b"g"


def main(descriptor: int, packages: list[str]) -> None:
    """`descriptor`: the socket of requests. Says first {"ready": true} or {"error": reason} on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, whose end is ours
    requests = socket.socket(fileno=descriptor)
    for name in PRELOADED:
        importlib.import_module(name)
    try:
        enter_namespaces()
        change_root(packages)
    except OSError as error:
        requests.send(json.dumps({"error": str(error)}).encode())
        return
    sys.path += packages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors need no burial
    gc.freeze()
    requests.send(json.dumps({"ready": True}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, MOST_DESCRIPTORS)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            supervise(json.loads(message), descriptors)
            os._exit(0)
        for number in descriptors:
            os.close(number)


def supervise(request: dict[str, Any], descriptors: list[int]) -> None:
    """Start the inmate, wait for it, end it, and tell. Ends it too when the control socket closes, or with us."""
    control = socket.socket(fileno=descriptors[0])
    try:
        status = _run(request, control, descriptors[1:])
    except OSError as error:
        status = {"setup": str(error)}
    try:
        control.send(json.dumps(status).encode())
    except BrokenPipeError:
        pass  # nobody waits for it any more


def _run(request: dict[str, Any], control: socket.socket, descriptors: list[int]) -> dict[str, Any]:
    limits = Limits(**request["limits"])
    kernel.die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.unshare(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        control.close()
        ours.close()
        _inmate(request, limits, descriptors, theirs)
    theirs.close()
    for number in descriptors:
        os.close(number)
    ended = os.pidfd_open(pid)
    try:
        problem = ours.recv(LARGEST_REQUEST)
        if problem != GO:
            return {"setup": problem.decode() or "the inmate ended before it was confined"}
        ours.send(GO)
        why = _wait(control, ended, limits.wall_s)
    finally:
        os.kill(pid, signal.SIGKILL)  # not yet waited for, so the number is still its own
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return why or ({"exit": code} if code >= 0 else {"signal": -code})


def _wait(control: socket.socket, ended: int, wall_s: float) -> dict[str, Any] | None:
    """Until the inmate ends (None), its time is over, or nobody wants it any more."""
    deadline = time.monotonic() + wall_s
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return {"timeout": True}
        ready, _, _ = select.select([ended, control.fileno()], [], [], left)
        if ended in ready:
            return None
        if control.fileno() in ready:
            return {"ended": True}


def _inmate(request: dict[str, Any], limits: Limits, descriptors: list[int], supervisor: socket.socket) -> None:
    """Never returns."""
    code = 1
    try:
        _close_all_but({supervisor.fileno(), *descriptors})
        try:
            _open_standard_streams()
            lock_in(limits)
            if request["filtered"]:
                install_filter()
            supervisor.send(GO)
            if supervisor.recv(1) != GO:  # it died before it could take us with it
                os._exit(1)
        except (OSError, ValueError) as error:  # ValueError: a hard limit that is lower than ours
            supervisor.send(f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        supervisor.close()
        code = ROLES[request["role"]](*descriptors)
    finally:
        os._exit(code)


def _open_standard_streams() -> None:
    """0, 1 and 2 as ends in nothing: those of the outside are closed, and the worker's log with them."""
    for number in (0, 1, 2):
        if os.open(os.devnull, os.O_RDWR) != number:
            raise OSError(f"descriptor {number} is in use")


def _close_all_but(kept: set[int]) -> None:
    """The kernel closes the gaps between the descriptors that are kept."""
    edges = [-1, *sorted(kept), 1 << 20]
    for before, after in itertools.pairwise(edges):
        if before + 1 < after:  # Python 3.11 closes everything when asked for an empty range
            os.closerange(before + 1, after)
