"""Where weight files travel: shared memory where they fit, and nothing is left of them."""

import os
import shutil
import time
from pathlib import Path

import pytest
from filelock import FileLock

from orchestrator.paths import RunPaths
from orchestrator.supervise.shared_memory import IN_USE, PREFIX, weights_folder


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    return RunPaths(run_dir=run_dir)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


def test_what_fits_travels_through_shared_memory(paths: RunPaths, shared: Path) -> None:
    with weights_folder(paths, 1000, shared) as folder:
        assert folder.parent == shared
        assert paths.weights.resolve() == folder
        assert folder.stat().st_mode & 0o077 == 0  # weights are for this user alone
        (paths.weights / "partial.tmp").write_bytes(b"left by a trainer that was killed")
    assert not paths.weights.is_symlink()
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("needed", [None, 1e18])
def test_what_does_not_fit_stays_in_the_run_directory(paths: RunPaths, shared: Path, needed: float | None) -> None:
    with weights_folder(paths, needed, shared) as folder:
        assert folder == paths.weights
        assert folder.is_dir()
    assert not folder.exists()


def test_without_shared_memory_the_run_directory_serves(paths: RunPaths, tmp_path: Path) -> None:
    with weights_folder(paths, 1000, tmp_path / "none") as folder:
        assert folder == paths.weights


def test_a_resumed_run_clears_what_the_killed_part_left(paths: RunPaths, shared: Path) -> None:
    old = shared / "old"
    old.mkdir()
    (old / "weights.safetensors").write_bytes(b"x")
    paths.weights.symlink_to(old)
    with weights_folder(paths, 1000, shared) as folder:
        assert folder != old
        assert not old.exists()


@pytest.mark.parametrize("age_s", [0, 3600])
def test_only_what_nobody_uses_is_removed(paths: RunPaths, shared: Path, age_s: float) -> None:
    used, abandoned = shared / f"{PREFIX}used", shared / f"{PREFIX}abandoned"
    for folder in (used, abandoned):
        folder.mkdir()
        (folder / IN_USE).touch()
        os.utime(folder, (time.time() - age_s,) * 2)
    with FileLock(used / IN_USE, timeout=0):
        os.utime(used, (time.time() - age_s,) * 2)
        with weights_folder(paths, 1000, shared):
            assert used.is_dir()
            assert abandoned.is_dir() == (age_s == 0)


def test_a_copied_run_leaves_the_memory_of_the_other_alone(tmp_path: Path) -> None:
    shared, first, copy = tmp_path / "shm", RunPaths(run_dir=tmp_path / "a"), RunPaths(run_dir=tmp_path / "b")
    shared.mkdir()
    first.run_dir.mkdir()
    with weights_folder(first, 1.0, shared) as folder:
        shutil.copytree(first.run_dir, copy.run_dir, symlinks=True)
        with weights_folder(copy, 1.0, shared) as other:
            assert other != folder
        assert folder.is_dir()
        assert first.weights.resolve() == folder
