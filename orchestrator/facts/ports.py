"""TCP ports of this machine: which of the recipe's are taken, which somebody listens on. No connection is made."""

import errno
import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from orchestrator.ledgers.ports import ports
from orchestrator.schema import RunConfig

LISTEN = "0A"
"""The state in /proc/net/tcp."""
TABLES = ("tcp", "tcp6")


def fixed_ports(run: RunConfig) -> Iterator[tuple[str, int]]:
    """(address, port) of everything that the run starts and that the recipe gives a port of its own."""
    hosts = {"generation.port": run.generation.host, "reward.port": run.reward.host}
    for port in ports(run):
        if port.started and isinstance(port.number, int) and 0 < port.number < 65536:
            yield hosts.get(port.path, ""), port.number


def busy_ports(wanted: Iterable[tuple[str, int]]) -> dict[int, str]:
    """Those of the (address, port) pairs that cannot be bound, with who holds them; '' is every address."""
    return {port: _owner(port) for host, port in wanted if _is_busy(host, port)}


def _is_busy(host: str, port: int) -> bool:
    """A bind attempt says whether. What else can be wrong with an address is not for this fact to say."""
    try:
        # Names are not looked up: that could ask a name server.
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
        )[0]
    except socket.gaierror:
        family, address = socket.AF_INET, ("127.0.0.1", port)
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _owner(port: int) -> str:
    from orchestrator.supervise.ports import port_owner

    return str(port_owner(port) or "a process that cannot be seen")


def listening_ports(net: Path = Path("/proc/net")) -> frozenset[int] | str:
    """Ports on which a connection to loopback finds a listener, from the kernel's tables in `net`."""
    tables = [net / name for name in TABLES if (net / name).is_file()]
    if not tables:
        return f"there is no {net / TABLES[0]}"
    try:
        return frozenset(port for table in tables for port in parse_listening(table.read_text(encoding="utf-8")))
    except (OSError, ValueError, IndexError) as error:
        return f"{net} cannot be read: {error!r}"


def parse_listening(table: str) -> Iterator[int]:
    """Ports in the text of /proc/net/tcp or tcp6 that listen on loopback or on every address. Raises ValueError."""
    for line in table.splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        address, _, port = local.partition(":")
        if state == LISTEN and _reaches_loopback(address):
            yield int(port, 16)


def _reaches_loopback(written: str) -> bool:
    """The kernel writes an address as hexadecimal words of four bytes, each in this machine's byte order."""
    words = [int(written[i : i + 8], 16).to_bytes(4, "little") for i in range(0, len(written), 8)]
    packed = b"".join(words)
    address: IPv4Address | IPv6Address = IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback or address.is_unspecified
