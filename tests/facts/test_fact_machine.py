"""Cores, space, environment and ports of a machine: real ones here, and folders written like a kernel's."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.compose import Composer
from orchestrator.facts import machine
from orchestrator.facts.ports import busy_ports, fixed_ports, listening_ports, parse_listening
from orchestrator.facts.types import EnvironmentSize
from orchestrator.resolve import resolve

ALLOWED = len(os.sched_getaffinity(0))


def cgroup(root: Path, line: str, limits: dict[str, str]) -> Path:
    files = {"proc/self/cgroup": f"12:memory:/x\n{line}\n"} | {f"sys/fs/cgroup/{k}": v for k, v in limits.items()}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("line", "limits", "expected"),
    [
        ("0::/", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/", {"cpu.max": "max 100000\n"}, 64),
        # 1.5 cores are one that is never throttled; half a core is still one.
        ("0::/", {"cpu.max": "150000 100000\n"}, 1),
        ("0::/", {"cpu.max": "50000 100000\n"}, 1),
        # The least of a group and those above it.
        ("0::/slurm/job", {"slurm/job/cpu.max": "max 100000", "slurm/cpu.max": "800000 100000"}, 8),
        # In a container that names its group as the host does, the limit is at the mount.
        ("0::/kubepods/pod1/c1", {"cpu.max": "200000 100000"}, 2),
        ("4:cpu,cpuacct:/", {"cpu,cpuacct/cpu.cfs_quota_us": "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 3),
        ("4:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "300000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 3),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ("4:cpuset:/", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ("0::/", {}, 64),
    ],
)
def test_cores_under_a_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, limits: dict[str, str], expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert machine.num_cpus(cgroup(tmp_path, line, limits)) == expected


def test_cores_without_control_groups(tmp_path: Path) -> None:
    assert machine.num_cpus(tmp_path) == ALLOWED
    assert 1 <= machine.num_cpus() <= ALLOWED


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    free = machine.free_bytes(tmp_path / "runs" / "not" / "yet")
    assert isinstance(free, int)
    assert abs(free - shutil.disk_usage(tmp_path).free) < 2**30


def test_shared_memory(tmp_path: Path) -> None:
    assert isinstance(machine.shm_free_bytes(tmp_path), int)
    assert machine.shm_free_bytes(tmp_path / "none") == f"there is no {tmp_path}/none"


def test_environment_size() -> None:
    assert machine.environment_size({b"A": b"12", b"LONG": b"x" * 100, b"\xff": b""}) == EnvironmentSize(
        variables=3, total_bytes=5 + 106 + 3, longest_name="LONG", longest_bytes=106
    )
    assert machine.environment_size({}) == EnvironmentSize(variables=0, total_bytes=0, longest_name="", longest_bytes=0)


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
TCP = (
    HEAD
    + """\
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 28514 1 0000000000000000
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21000 1 0000000000000000
   2: 0500A8C0:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21001 1 0000000000000000
   3: 0100007F:1F92 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 28515 1 0000000000000000
   4: 3500007F:0035 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 18000 1 0000000000000000
"""
)
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000000000000:2328 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 00000000000000000000000001000000:2329 00000000000000000000000000000000:0000 0A 00000000:00000000
   2: 0000000000000000FFFF00000100007F:232A 00000000000000000000000000000000:0000 0A 00000000:00000000
   3: 0000000000000000FFFF00000500A8C0:232B 00000000000000000000000000000000:0000 0A 00000000:00000000
   4: B80D01200000000000000000010000FE:232C 00000000000000000000000000000000:0000 0A 00000000:00000000
"""


def test_who_listens_where_loopback_reaches() -> None:
    assert set(parse_listening(TCP)) == {8080, 22, 53}
    assert set(parse_listening(TCP6)) == {9000, 9001, 9002}


def test_tables_that_are_not_there_or_not_understood(tmp_path: Path) -> None:
    assert listening_ports(tmp_path) == f"there is no {tmp_path}/tcp"
    (tmp_path / "tcp").write_text(TCP)
    assert listening_ports(tmp_path) == {8080, 22, 53}
    (tmp_path / "tcp6").write_text(HEAD + "a b\n")
    assert str(listening_ports(tmp_path)).startswith(f"{tmp_path} cannot be read")


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_real_listener_is_seen_without_a_connection(listener: int) -> None:
    found = listening_ports()
    assert not isinstance(found, str)
    assert listener in found


def test_a_busy_port_has_an_owner(listener: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    wanted = [("127.0.0.1", listener), ("127.0.0.1", free)]
    assert list(busy_ports(wanted)) == [listener]
    assert f"pid {os.getpid()}" in busy_ports(wanted)[listener]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "localhost", "a-name-that-nobody-asks-a-server-for"])
def test_a_listener_on_loopback_blocks_the_address_of_a_part(listener: int, host: str) -> None:
    assert list(busy_ports([(host, listener)])) == [listener]


def test_an_address_of_another_machine_is_not_busy(listener: int) -> None:
    assert busy_ports([("192.0.2.1", listener)]) == {}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], []),
        (["generation.port=8000", "reward.port=8001"], [("127.0.0.1", 8000), ("127.0.0.1", 8001)]),
        (["generation.port=8000", "generation.host=0.0.0.0"], [("0.0.0.0", 8000)]),
        (["generation.port=0", "reward.port=70000"], []),
        (["generation=external", "generation.url=http://127.0.0.1:8000"], []),
        (["reward=external", "reward.url=http://127.0.0.1:8001"], []),
        (["generation=vllm_nccl", "generation.port=8000", "generation.weight_sync.port=51216"], [8000, 51216]),
        (["generation.weight_sync.port=51216"], []),
        (["launcher=torchrun", "launcher.main_port=29500"], [29500]),
        (["launcher.main_port=29500"], []),
    ],
)
def test_ports_that_the_run_would_bind(overrides: list[str], expected: list[object]) -> None:
    run, _ = resolve(Composer().compose(["+experiment=grpo_math", *overrides]).raw)
    found = list(fixed_ports(run))
    assert found == expected or [port for _, port in found] == expected
