"""GPUs as nvidia-smi tells them: its texts, its failures, and a small program in its place."""

import os
from pathlib import Path

import pytest

from orchestrator.compose import Composer
from orchestrator.facts import Gpu
from orchestrator.facts.gpus import GpusUnknownError, parse_gpus, uses_gpus, visible_gpus
from orchestrator.resolve import resolve

H100S = """\
0, GPU-6a1f3c52-0e7c-9b3e-5a52-97d1b1a5c001, NVIDIA H100 80GB HBM3, 81559, 9.0, Disabled
1, GPU-6b77e4d0-1f6d-4a8e-83c4-21e7a5b9c002, NVIDIA H100 80GB HBM3, 81559, 9.0, Disabled
2, GPU-c0de1111-2222-3333-4444-555566667777, NVIDIA H100 80GB HBM3, 81559, 9.0, Disabled
"""
CONSUMER = "0, GPU-11111111-aaaa-bbbb-cccc-dddddddddddd, NVIDIA GeForce RTX 3090, 24576, 8.6, [N/A]\n"
SHARED_MEMORY = "0, GPU-22222222-aaaa-bbbb-cccc-dddddddddddd, NVIDIA GB10, [N/A], 12.1, [N/A]\n"
OLD = "0, GPU-33333333-aaaa-bbbb-cccc-dddddddddddd, Tesla K80, 11441, [Not Supported], [N/A]\n"
WITH_MIG = (
    H100S
    + """\
3, GPU-44444444-aaaa-bbbb-cccc-dddddddddddd, NVIDIA A100-SXM4-80GB, 81920, 8.0, Enabled
"""
)


def indices(gpus: tuple[Gpu, ...]) -> list[int]:
    return [gpu.index for gpu in gpus]


def test_what_a_row_says() -> None:
    assert parse_gpus(CONSUMER, None) == (
        Gpu(index=0, name="NVIDIA GeForce RTX 3090", memory_gib=24.0, capability=8.6),
    )
    first, *_ = parse_gpus(H100S, None)
    assert (round(first.memory_gib or 0, 1), first.capability) == (79.6, 9.0)


def test_what_a_gpu_does_not_report() -> None:
    assert parse_gpus(SHARED_MEMORY, None)[0].memory_gib is None
    assert parse_gpus(OLD, None) == (Gpu(index=0, name="Tesla K80", memory_gib=11441 / 1024, capability=None),)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2]),
        ("0,1,2", [0, 1, 2]),
        ("2, 0", [2, 0]),
        ("GPU-6b77e4d0-1f6d-4a8e-83c4-21e7a5b9c002", [1]),
        ("GPU-c0de,0", [2, 0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        # CUDA stops at the first that is not there.
        ("0,7,1", [0]),
        ("1,-1,2", [1]),
    ],
)
def test_cuda_visible_devices(visible: str | None, expected: list[int]) -> None:
    assert indices(parse_gpus(H100S, visible)) == expected


def test_a_gpu_split_by_mig_is_not_known_unless_it_is_left_out() -> None:
    assert indices(parse_gpus(WITH_MIG, "0,1")) == [0, 1]
    with pytest.raises(GpusUnknownError, match="GPU 3 is split by MIG"):
        parse_gpus(WITH_MIG, None)
    with pytest.raises(GpusUnknownError, match="MIG-5c1e, a part of a GPU"):
        parse_gpus(WITH_MIG, "MIG-5c1e")


@pytest.mark.parametrize("table", ["No devices were found\n", "0, GPU-1, H100\n", "x, GPU-1, H100, 1, 9.0, [N/A]\n"])
def test_an_answer_that_is_no_table(table: str) -> None:
    with pytest.raises(GpusUnknownError, match="nvidia-smi answers"):
        parse_gpus(table, None)


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A root folder on which NVIDIA's driver is loaded."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    return tmp_path


def install_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_without_a_driver_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_nvidia_smi(tmp_path / "bin", monkeypatch, f"touch {tmp_path}/asked")
    assert visible_gpus(None, tmp_path) == ()
    assert not (tmp_path / "asked").exists()


def test_amds_driver_is_said(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert visible_gpus(None, tmp_path) == "only NVIDIA's GPUs are looked at, and this machine has AMD's driver"


def test_a_real_question_to_a_program(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f'echo "$@" > {driver}/argv\ncat <<EOF\n{H100S}EOF'
    install_nvidia_smi(driver / "bin", monkeypatch, script)
    found = visible_gpus("1", driver)
    assert not isinstance(found, str)
    assert indices(found) == [1]
    assert (driver / "argv").read_text() == (
        "--query-gpu=index,uuid,name,memory.total,compute_cap,mig.mode.current --format=csv,noheader,nounits\n"
    )


def test_a_driver_that_does_not_answer(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    install_nvidia_smi(driver / "bin", monkeypatch, f'echo "{said}"\nexit 9')
    assert visible_gpus(None, driver) == f"nvidia-smi ended with code 9 and said: {said}"


def test_a_program_that_hangs(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_nvidia_smi(driver / "bin", monkeypatch, "exec sleep 60")
    monkeypatch.setattr("orchestrator.facts.gpus.TIMEOUT_S", 0.2)
    assert visible_gpus(None, driver) == "nvidia-smi did not answer within 0.2 s"


def test_no_program(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(driver))
    assert visible_gpus(None, driver) == "NVIDIA's driver is loaded, and nvidia-smi is not on PATH"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], False),
        (["generation=vllm"], True),
        (["generation=colocate"], True),
        (["launcher=torchrun"], True),
        (["launcher.gpus=[0]"], True),
        (["generation.gpus=[0]"], True),
        (["reward.judge.gpus=[1]"], True),
        (["launcher.zero_stage=2"], True),
        (["trainer=command"], True),
        (["generation=external", "generation.url=http://127.0.0.1:8000"], False),
    ],
)
def test_which_recipes_ask(overrides: list[str], expected: bool) -> None:
    run, _ = resolve(Composer().compose(["+experiment=grpo_math", *overrides]).raw)
    assert uses_gpus(run) is expected
