"""`port: auto`: free ports that no other orchestrator of this host takes at the same time."""

import random
import socket

from orchestrator.supervise.ports import is_bindable

FIRST_PORT = 20_000
LAST_PORT = 32_767
HOST = "127.0.0.1"


class LeaseError(Exception):
    """No free port was found."""


class PortLease:
    """A port that is ours until `release`, or until this process dies in whatever way.

    The lock is an abstract unix socket (unix(7)) named after the port. Like the port itself, and unlike a lock file,
    it is one per network namespace whoever the users are and whatever TMPDIR and XDG_RUNTIME_DIR say, and nothing
    of it stays behind.
    """

    def __init__(self, port: int, lock: socket.socket) -> None:
        self.port = port
        self._lock = lock

    def release(self) -> None:
        """Give the port back: call it once the service has been seen listening. May be called twice."""
        self._lock.close()

    def __enter__(self) -> "PortLease":
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def lease_port(port: int) -> PortLease | None:
    """A lease of this port; None when somebody listens on it or holds a lease of it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0orchestrate-port-{port}")
    except OSError:
        lock.close()
        return None
    # The lock comes first: asked the other way round, two could both find the port free.
    if is_bindable(HOST, port):
        return PortLease(port, lock)
    lock.close()
    return None


def lease_ports(num_ports: int) -> tuple[PortLease, ...]:
    """That many different free ports on the loopback address. Raises LeaseError, holding none, when there are not.

    They lie below the range that the kernel takes for outgoing connections, any of which could otherwise take a
    leased port before the service binds it.
    """
    first_ephemeral = _first_ephemeral_port()
    last = min(LAST_PORT, first_ephemeral - 1) if first_ephemeral > FIRST_PORT else LAST_PORT
    leases: list[PortLease] = []
    candidates = range(FIRST_PORT, last + 1)
    for port in random.sample(candidates, len(candidates)):
        if len(leases) == num_ports:
            break
        if (lease := lease_port(port)) is not None:
            leases.append(lease)
    if len(leases) < num_ports:
        for lease in leases:
            lease.release()
        raise LeaseError(f"{num_ports} free ports wanted, {len(leases)} found between {FIRST_PORT} and {last}")
    return tuple(leases)


def _first_ephemeral_port() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return LAST_PORT + 1
