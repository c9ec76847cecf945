"""Ports that are ours, and whose the others are."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from scene import PROGRAMS, ROOT, wait_for

from orchestrator.supervise import leases
from orchestrator.supervise.leases import LeaseError, lease_port, lease_ports
from orchestrator.supervise.ports import addresses_clash, is_bindable, port_owner, port_owners

HOLD = """
import sys, time
from orchestrator.supervise.leases import lease_ports
held = lease_ports(40)
print(*(lease.port for lease in held), flush=True)
sys.stdin.read()
"""


def holder() -> "subprocess.Popen[bytes]":
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": "/nowhere"}
    return subprocess.Popen([sys.executable, "-c", HOLD], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_orchestrators_of_the_same_second_get_different_ports() -> None:
    holders = [holder() for _ in range(4)]
    ports = [int(word) for one in holders for word in one.stdout.readline().split()]  # type: ignore[union-attr]
    assert len(set(ports)) == 160
    for one in holders:
        one.communicate(b"")


def test_a_lease_dies_with_its_process() -> None:
    one = holder()
    port = int(one.stdout.readline().split()[0])  # type: ignore[union-attr]
    assert lease_port(port) is None
    one.kill()
    one.communicate()
    lease = lease_port(port)
    assert lease is not None
    lease.release()


def test_a_released_lease_can_be_had_again() -> None:
    (lease,) = lease_ports(1)
    assert lease_port(lease.port) is None
    lease.release()
    lease.release()
    again = lease_port(lease.port)
    assert again is not None
    again.release()


def test_a_taken_port_is_not_leased() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert lease_port(server.getsockname()[1]) is None


def test_a_port_shared_by_so_reuseport_is_not_leased() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        assert not is_bindable("127.0.0.1", server.getsockname()[1])


def test_too_few_free_ports_leave_none_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = lease_ports(1)
    one.release()
    monkeypatch.setattr(leases, "FIRST_PORT", one.port)
    monkeypatch.setattr(leases, "LAST_PORT", one.port)
    with pytest.raises(LeaseError, match="2 free ports wanted"):
        lease_ports(2)
    (again,) = lease_ports(1)
    assert again.port == one.port
    again.release()


def test_leased_ports_are_not_those_of_outgoing_connections() -> None:
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with lease_ports(1)[0] as lease:
        assert lease.port < first_ephemeral


def test_the_owner_of_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        owner = port_owner(port)
        assert owner is not None
        assert (owner.pid, owner.same_user) == (os.getpid(), True)
        assert str(owner).startswith(f"pid {os.getpid()}: ")
    assert port_owner(port) is None


def test_an_owner_that_cannot_be_seen_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = SimpleNamespace(status=psutil.CONN_LISTEN, laddr=SimpleNamespace(ip="0.0.0.0", port=81), pid=None)
    monkeypatch.setattr(psutil, "net_connections", lambda kind: [hidden])
    (owner,) = port_owners(81, "127.0.0.1")
    assert "cannot be seen" in str(owner)


@pytest.mark.parametrize(
    ("bound", "wanted", "clash"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "localhost", True),
        ("10.0.0.5", "127.0.0.1", False),
        ("10.0.0.5", "10.0.0.5", True),
    ],
)
def test_addresses_clash(bound: str, wanted: str, clash: bool) -> None:
    assert addresses_clash(bound, wanted) is clash


def test_runs_of_the_same_second_do_not_meet(tmp_path: Path) -> None:
    argv = [sys.executable, str(PROGRAMS / "twin.py"), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    twins = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    wait_for(lambda: all(twin.poll() is not None for twin in twins), 40)
    lines = [twin.communicate()[0].split() for twin in twins]
    assert [line[3] for line in lines] == ["0", "0", "0"], lines
    assert len({line[0] for line in lines}) == 3
    assert len({port for line in lines for port in line[1:3]}) == 6
    names = sorted(path.name for path in (tmp_path / "twin").iterdir())
    assert names == ["2026-01-31_12-00-00", "2026-01-31_12-00-00-2", "2026-01-31_12-00-00-3", "latest"]
