"""Who listens on a TCP port. Needs no root for one's own processes."""

import os
import socket
from dataclasses import dataclass

import psutil

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104  compared with, never bound
RESCANS = 2
LOOPBACK = ("127.0.0.1", "::1", "localhost", "::ffff:127.0.0.1")


@dataclass(frozen=True, kw_only=True)
class PortOwner:
    """A process that listens. pid None: it cannot be seen, being another user's, or in another container."""

    pid: int | None
    command: str
    same_user: bool

    def __str__(self) -> str:
        if self.pid is None:
            return "a process that cannot be seen from here (another user's, or in another container)"
        return f"pid {self.pid}: {self.command}" + ("" if self.same_user else " (another user's)")


def is_bindable(host: str, port: int) -> bool:
    """Whether a plain bind succeeds now. SO_REUSEADDR and SO_REUSEPORT stay off: they would hide an owner."""
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(info[0], socket.SOCK_STREAM) as probe:
            probe.bind(info[4])
    except OSError:
        return False
    return True


def port_owners(port: int, host: str | None = None) -> tuple[PortOwner, ...]:
    """Every listener on the port; with SO_REUSEPORT there can be several. With `host`, those that clash with it."""
    pids = _listeners(port, host)
    for _ in range(RESCANS):
        # A socket opened after psutil had looked through the processes seems to belong to nobody: look again.
        if None in pids:
            pids = _listeners(port, host)
    return tuple(_owner(pid) for pid in sorted(pids, key=lambda pid: pid or 0))


def port_owner(port: int, host: str | None = None) -> PortOwner | None:
    """The first listener on the port, None when nobody listens."""
    return next(iter(port_owners(port, host)), None)


def addresses_clash(bound: str, wanted: str) -> bool:
    """Whether a listener on one address gets, or blocks, what is meant for the other."""
    if bound in WILDCARDS or wanted in WILDCARDS:
        return True
    return bound == wanted or (bound in LOOPBACK and wanted in LOOPBACK)


def _listeners(port: int, host: str | None) -> set[int | None]:
    return {
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        # laddr is () for a socket that is bound to nothing.
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port == port
        and (host is None or addresses_clash(connection.laddr.ip, host))
    }


def _owner(pid: int | None) -> PortOwner:
    if pid is None:
        return PortOwner(pid=None, command="", same_user=False)
    try:
        process = psutil.Process(pid)
        same_user = process.uids().real == os.getuid()
        return PortOwner(pid=pid, command=" ".join(process.cmdline()) or process.name(), same_user=same_user)
    except psutil.Error:
        return PortOwner(pid=pid, command="(it has just exited)", same_user=False)
