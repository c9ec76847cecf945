"""The wheel, away from the checkout, in a folder where a user has a rewards.py and a conf/ of their own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.orchestrated import SMALL, read, run_dirs

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Without isolation: the build back-end is a dev dependency, so that a test needs no network.
    command = ["wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_what_a_run_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "conf/config.yaml",
        "conf/experiment/grpo_math.yaml",
        "orchestrator/assets/tiny_math/model.safetensors",
        "rewards/server.py",
        "launchers/embedded.py",
        "orchestrator/generation/vllm_plugin/orchestrate_vllm/engine.py",
        "orchestrator/generation/vllm_plugin/orchestrate_vllm-1.0.dist-info/entry_points.txt",
    } <= names
    assert not [name for name in names if name.startswith(("tests/", "examples/", "docs/"))]


@pytest.mark.e2e
def test_the_installed_wheel_runs_beside_a_users_own_modules(wheel: Path, tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)],
        check=True,
        timeout=120,
    )
    work.mkdir()
    (work / "rewards.py").write_text("raise RuntimeError('the rewards.py of the user was imported')\n")
    (work / "conf").mkdir()
    (work / "conf" / "config.yaml").write_text("broken: [\n")
    env = os.environ | {"PYTHONPATH": str(site)}
    command = [sys.executable, "-P", "-m", "orchestrator", *SMALL]
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(work)
    assert str(site) in read(run_dir / "plan.json")["steps"][1]["argv"][5]  # the model that ships, out of the wheel
