"""What a service's address says, without judging it: a rule does that."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound
DEFAULT_PORTS = {"http": 80, "https": 443}


def host_of(url: str) -> str:
    """The host, without brackets, user or port; '' when there is none."""
    host = _split(url).netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def port_of(url: str) -> int | str | None:
    """The port as written (`auto` included), the scheme's own where none is written, None when there is neither."""
    parts = _split(url)
    place = parts.netloc.rpartition("@")[2]
    host = place.rpartition("]")[2] if "]" in place else place
    _, colon, port = host.rpartition(":")
    if not colon:
        return DEFAULT_PORTS.get(parts.scheme)
    return int(port) if port.isascii() and port.isdigit() else port


def is_loopback(host: str) -> bool:
    """An address of this machine that no other machine reaches."""
    address = _address(host)
    return host in LOOPBACK or (address is not None and address.is_loopback)


def is_number(host: str) -> bool:
    """An IP address and not a name."""
    return _address(host) is not None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def _split(url: str) -> SplitResult:
    """An address whose brackets do not match has no host."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult(scheme="", netloc="", path=url, query="", fragment="")
