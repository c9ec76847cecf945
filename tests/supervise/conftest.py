"""Fixtures of the tests with real processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from scene import Scene, pids_of_run

from orchestrator.supervise.leases import lease_ports


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Whatever a failed test leaves is killed."""
    scene = Scene(tmp_path)
    yield scene
    for pid in pids_of_run(scene.run_id):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def ports() -> Iterator[list[int]]:
    leases = lease_ports(3)
    yield [lease.port for lease in leases]
    for lease in leases:
        lease.release()
