"""The worker's side: one zygote, and runs in it. Safe to use from several threads."""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rewards.sandbox.confine import Limits

BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from rewards.sandbox.zygote import main; "
    "sys.path.remove(sys.argv[1]); main(int(sys.argv[2]), sys.argv[3:])"
)
# -S: no site-packages, which cost time and memory. The hash seed is fixed: the order of a set must not decide a reward.
INTERPRETER = (sys.executable, "-s", "-S", "-P", "-B", "-X", "utf8", "-c", BOOT)
ENVIRONMENT = {"PYTHONHASHSEED": "0", "HOME": "/work", "TMPDIR": "/work", "OMP_NUM_THREADS": "1"}
START_S = 20.0
GRACE_S = 5.0  # for starting and ending a run, on top of its own time
LARGEST_STATUS = 1 << 16
JUDGE_MEMORY = 2  # times that of the solution, whose data it holds beside the expected ones
VERDICT_BYTES = 1 << 20


class SandboxError(RuntimeError):
    """The sandbox itself failed: no verdict about any code."""


@dataclass(frozen=True)
class ScriptRun:
    """How a script ended, and what it printed."""

    problem: str | None
    """None: it ended by itself, with exit code 0."""
    output: bytes


@dataclass(frozen=True)
class Verdict:
    """Of the tests, how many there are and how many passed."""

    passed: int
    total: int
    bad: str | None
    """Why the tests cannot be run by anybody."""
    notes: tuple[str, ...] = ()
    """What the tests that failed did with objects of the solution's that cannot be done from outside."""


class Sandbox:
    """Starts at once. Raises SandboxError with the kernel's reason where it cannot."""

    def __init__(self, *, site_packages: bool = False) -> None:
        packages = _site_packages() if site_packages else []
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(__file__).resolve().parents[2])
        with theirs:
            self._zygote = subprocess.Popen(
                [*INTERPRETER, root, str(theirs.fileno()), *packages],
                pass_fds=[theirs.fileno()],
                env=ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._requests = ours
        ours.settimeout(START_S)
        try:
            answer = json.loads(ours.recv(LARGEST_STATUS) or b'{"error": "the bare interpreter ended at once"}')
        except TimeoutError:
            answer = {"error": f"the bare interpreter said nothing for {START_S:g} s"}
        if "error" in answer:
            self.close()
            raise SandboxError(answer["error"])

    @property
    def alive(self) -> bool:
        return self._zygote.poll() is None

    def run_script(
        self, source: bytes, stdin: bytes, limits: Limits, *, most_output: int, filtered: bool = True
    ) -> ScriptRun:
        """Run a script on one input; at most `most_output` bytes of what it prints are read. Raises SandboxError."""
        with _memory(source) as code, _memory(stdin) as given, _memory() as output:
            status = self._start("script", [code, given, output], limits, filtered=filtered).wait(limits.wall_s)
            if status.get("timeout"):
                return ScriptRun("it took too long", b"")
            problem = None if status.get("exit") == 0 else f"it ended with {json.dumps(status)}"
            return ScriptRun(problem, os.pread(output, most_output + 1, 0))

    def run_tests(self, source: bytes, task: dict[str, Any], limits: Limits) -> Verdict:
        """Run `task` (judge.judge) against the code. Raises SandboxError."""
        judge_limits = Limits(limits.memory_bytes * JUDGE_MEMORY, limits.wall_s, VERDICT_BYTES)
        with _memory(source) as code, _memory(json.dumps(task).encode()) as tests, _memory() as verdict:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                solution = self._start("solution", [code, ours.fileno()], limits)
                judge = self._start("judge", [tests, theirs.fileno(), verdict], judge_limits)
            try:
                status = judge.wait(limits.wall_s)
            finally:
                solution.end()
            if status.get("exit") != 0 and not status.get("timeout"):
                raise SandboxError(f"the judge ended with {json.dumps(status)}")
            return _verdict(os.pread(verdict, VERDICT_BYTES, 0))

    def close(self) -> None:
        """End the zygote; supervisors and inmates end with it."""
        self._requests.close()
        self._zygote.kill()
        self._zygote.wait()

    def _start(self, role: str, descriptors: list[int], limits: Limits, *, filtered: bool = True) -> "_Run":
        ours, theirs = socket.socketpair()
        message = json.dumps({"role": role, "limits": asdict(limits), "filtered": filtered}).encode()
        with theirs:
            try:
                socket.send_fds(self._requests, [message], [theirs.fileno(), *descriptors])
            except OSError as error:
                ours.close()
                raise SandboxError(f"the sandbox's zygote is gone: {error}") from error
        return _Run(ours)


class _Run:
    """One inmate, by the socket of its supervisor."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def wait(self, limit_s: float) -> dict[str, Any]:
        """How it ended. Raises SandboxError when it was never confined, or nobody tells."""
        with self._control as control:
            control.settimeout(limit_s + GRACE_S)
            try:
                data = control.recv(LARGEST_STATUS)
            except OSError as error:
                raise SandboxError(f"the sandbox did not answer: {error}") from error
        status: dict[str, Any] = json.loads(data) if data else {"setup": "its supervisor was killed"}
        if "setup" in status:
            raise SandboxError(f"a run could not be confined: {status['setup']}")
        return status

    def end(self) -> None:
        """End it, and wait until it has. Raises SandboxError when it was never confined."""
        with contextlib.suppress(OSError):  # it has ended, and told
            self._control.shutdown(socket.SHUT_WR)
        self.wait(0.0)


@contextlib.contextmanager
def _memory(content: bytes | None = None) -> Iterator[int]:
    """A file in memory: sealed with this content, or to be written."""
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        if content is not None:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            os.lseek(descriptor, 0, os.SEEK_SET)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        yield descriptor
    finally:
        os.close(descriptor)


def _verdict(lines: bytes) -> Verdict:
    passed, total, notes = 0, 0, []
    for line in map(json.loads, lines.splitlines()):
        if "bad" in line:
            return Verdict(0, 0, line["bad"])
        total = line.get("total", total)
        passed += line.get("passed", False)
        notes += line.get("notes", ())
    if total == 0:
        raise SandboxError("the judge gave no verdict in time")
    return Verdict(passed, total, None, tuple(dict.fromkeys(notes)))


def _site_packages() -> list[str]:
    paths = sysconfig.get_paths()
    return sorted({paths["purelib"], paths["platlib"]})
