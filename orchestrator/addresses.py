"""What a service's address says, without judging it: a rule does that."""

from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound
DEFAULT_PORTS = {"http": 80, "https": 443}


def host_of(url: str) -> str:
    """The host, without brackets, user or port; '' when there is none."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def port_of(url: str) -> int | str | None:
    """The port as written (`auto` included), the scheme's own where none is written, None when there is neither."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("]")[2] if "]" in parts.netloc else parts.netloc
    _, colon, port = host.rpartition(":")
    if not colon:
        return DEFAULT_PORTS.get(parts.scheme)
    return int(port) if port.isdigit() else port
