"""Proves, by trying to break out, that the sandbox holds on this machine; says what to do where it does not."""

import contextlib
import json
import os
import platform
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rewards.contract import PrepareError
from rewards.sandbox.client import Sandbox, SandboxError
from rewards.sandbox.confine import Limits

PROBE_S, ENDLESS_S = 10.0, 0.3
FILE_BYTES, OUTPUT_BYTES = 1 << 20, 1 << 16

# Tries everything that must fail; prints the names of what did not.
ESCAPES = """
import errno, fcntl, json, os, socket, stat
port, canary, memory = json.loads(input())
broken = []
def must_fail(name, attempt):
    try: attempt()
    except (OSError, MemoryError): return
    broken.append(name)
def write_too_much():
    with open("big", "wb") as file:
        for _ in range(64): file.write(bytes(1 << 20))
def is_known(number):
    # /dev/null, or a file in memory: sealed, as the code and its input are, or for the output
    kind = os.fstat(number)
    if stat.S_ISCHR(kind.st_mode): return kind.st_rdev == os.makedev(1, 3)
    return stat.S_ISREG(kind.st_mode) and kind.st_nlink == 0 and fcntl.fcntl(number, fcntl.F_GET_SEALS) in (0, 15)
def look_at_descriptors():
    for number in range(1 << 12):
        try: known = is_known(number)
        except OSError as error: known = error.errno == errno.EBADF
        if not known: broken.append(f"descriptor {number} of the outside")
look_at_descriptors()
must_fail("a connection to a port of this machine", lambda: socket.create_connection(("127.0.0.1", port), 1))
must_fail("reading a file outside", lambda: open(canary))
must_fail("reading /etc/passwd", lambda: open("/etc/passwd"))
must_fail("seeing processes outside", lambda: os.listdir("/proc/1"))
must_fail("writing outside of /work", lambda: open("/planted", "w"))
must_fail("writing a file beyond the limit", write_too_much)
must_fail("allocating twice the memory limit", lambda: bytearray(2 * memory))
if os.getpid() != 1: broken.append("a process namespace of its own")
if os.getuid() == 0: broken.append("an unprivileged user id")
print(json.dumps(broken))
"""
PROCESSES = """
import json, os, socket, threading
broken = []
def must_fail(name, attempt):
    try: attempt()
    except OSError: return
    broken.append(name)
must_fail("a second process", lambda: os._exit(0) if os.fork() == 0 else None)
must_fail("another program", lambda: os.execv("/usr/lib/ld.so", ["ld.so"]))
must_fail("a socket", lambda: socket.socket())
must_fail("a session of its own", os.setsid)
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
print(json.dumps(broken))
"""
SYSCTLS = {
    "user.max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=15000"),
    "kernel.unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
}
CONTAINER = "in a container: docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"


def proven_sandbox(memory_bytes: int, *, site_packages: bool) -> Sandbox:
    """A sandbox that has withstood the attempts. Raises PrepareError with the reason and what an admin can do."""
    if sys.platform != "linux":
        raise PrepareError(f"code is run in Linux namespaces, which {platform.system()} has not: run this on Linux")
    try:
        sandbox = Sandbox(site_packages=site_packages)
    except SandboxError as error:
        raise PrepareError(f"this kernel gives no isolation ({error}); code is not run without. {remedy()}") from error
    try:
        broken = escapes(sandbox, memory_bytes)
    except SandboxError as error:
        sandbox.close()
        raise PrepareError(f"a run could not be isolated ({error}); code is not run without. {remedy()}") from error
    if broken:
        sandbox.close()
        raise PrepareError(f"the sandbox does not hold here: it allowed {', '.join(broken)}; code is not run in it")
    return sandbox


def escapes(sandbox: Sandbox, memory_bytes: int) -> list[str]:
    """What should have failed and did not. Raises SandboxError."""
    limits = Limits(memory_bytes, PROBE_S, FILE_BYTES)
    with _listener() as port, tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary"
        canary.write_text("seen")
        given = json.dumps([port, str(canary), memory_bytes])
        # Without the filter too: the namespaces must hold by themselves.
        broken = [name for filtered in (False, True) for name in _attempt(sandbox, ESCAPES, given, limits, filtered)]
    broken += _attempt(sandbox, PROCESSES, "", limits, filtered=True)
    endless = sandbox.run_script(b"while True: pass", b"", Limits(memory_bytes, ENDLESS_S, FILE_BYTES), most_output=0)
    broken += [] if endless.problem else ["running without end"]
    return list(dict.fromkeys(broken))


def _attempt(sandbox: Sandbox, source: str, given: str, limits: Limits, filtered: bool) -> list[str]:
    run = sandbox.run_script(source.encode(), given.encode(), limits, most_output=OUTPUT_BYTES, filtered=filtered)
    if run.problem:
        raise SandboxError(f"the test program did not run through: {run.problem}")
    found: list[Any] = json.loads(run.output)
    return [str(name) for name in found]


@contextlib.contextmanager
def _listener() -> Iterator[int]:
    """A port of this machine that would take a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def remedy() -> str:
    """What an admin can change, as far as this machine shows it."""
    closed = []
    for name, (bad, command) in SYSCTLS.items():
        path = Path("/proc/sys") / name.replace(".", "/")
        if path.exists() and path.read_text().strip() == bad:
            closed.append(f"{name} is {bad}: {command}")
    where = "; ".join(closed) or f"No sysctl forbids it, so something around us does; {CONTAINER}"
    return f"{where}. It needs Linux 5.12, unprivileged user namespaces and seccomp (uid {os.getuid()})"
