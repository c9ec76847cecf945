"""The commands of every example's README, as a reader would type them, from the project's root."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [
    pytest.param(command, id=f"{readme.parent.name}-{number}")
    for readme in sorted((ROOT / "examples").glob("*/README.md"))
    for number, command in enumerate(re.findall(r"^```console\n(.*?)\n```", readme.read_text(), re.M | re.S))
]


@pytest.mark.e2e
@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_a_readme(command: str, tmp_path: Path) -> None:
    # The reader's shell: the environment's programs are found, and runs/ goes where the test can throw it away.
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(["bash", "-euc", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_example_has_a_readme() -> None:
    folders = [path for path in (ROOT / "examples").iterdir() if path.is_dir() and not path.name.startswith((".", "_"))]
    assert [path.name for path in folders if not (path / "README.md").is_file()] == []
