"""Weights of a model that two processes share (FSDP2 over gloo), to real servers: all ranks read, one speaks."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from orchestrator.supervise.leases import lease_ports
from tests.training.test_sync import ROOT, faulty_server

LIMIT_S = 120.0

Seen = dict[str, Any]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """What each of the two saw, by case."""
    folder = tmp_path_factory.mktemp("sharded")
    with faulty_server("none", folder) as good, faulty_server("miss-one", folder) as faulty, lease_ports(1)[0] as lease:
        shared = os.environ | {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(lease.port),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "OMP_NUM_THREADS": "1",
            "ACCELERATE_USE_CPU": "true",
        }
        argv = [sys.executable, "-m", "tests.training.two_shards", str(folder), good, faulty]
        both = [
            subprocess.Popen(
                argv, cwd=ROOT, env=shared | {"RANK": str(i), "LOCAL_RANK": str(i)}, stderr=subprocess.PIPE, text=True
            )
            for i in range(2)
        ]
        try:
            said = [rank.communicate(timeout=LIMIT_S)[1] for rank in both]
        finally:
            for rank in both:
                rank.kill()
    assert [rank.returncode for rank in both] == [0, 0], "\n".join(said)
    assert sorted(path.name for path in folder.iterdir()) == ["0.json", "1.json"]  # no weights are left
    return [json.loads((folder / f"{i}.json").read_text()) for i in range(2)]


@pytest.mark.parametrize("kind", ["plain", "adapted"])
def test_shards_arrive_whole(ranks: list[Seen], kind: str) -> None:
    for seen in ranks:
        assert seen[kind]["same_as_whole"]
        assert (seen[kind]["ended"], seen[kind]["num_syncs"]) == ("well", 3)
    assert ranks[0][kind]["gap"] == ranks[1][kind]["gap"] < 1e-4


def test_a_fault_that_the_main_process_sees_ends_all(ranks: list[Seen]) -> None:
    main, other = (seen["faulty"] for seen in ranks)
    assert (main["ended"], other["ended"]) == ("SyncProofError", "MainProcessError")
    assert "misses a tensor" in main["said"]
    assert main["said"] in other["said"]


def test_a_write_that_fails_halfway_ends_all(ranks: list[Seen]) -> None:
    """The others are still gathering when it does."""
    main, other = (seen["cut short"] for seen in ranks)
    assert (main["ended"], other["ended"]) == ("WeightSyncError", "MainProcessError")
    assert "File too large" in main["said"]
    assert main["said"] in other["said"]


@pytest.mark.parametrize("case", ["faulty", "cut short"])
def test_what_the_canary_perturbed_is_as_before(ranks: list[Seen], case: str) -> None:
    """After a proof that failed too: a checkpoint may yet be saved."""
    assert all(seen[case]["restored"] for seen in ranks)
