"""Where an interpreter's packages are, found from its folders: it is not started, so a broken one is no danger."""

import os
import re
import shutil
import site
from collections.abc import Iterator
from pathlib import Path


class LayoutError(Exception):
    """The folders around an interpreter are not of a kind that is understood."""


def site_packages(interpreter: str) -> tuple[str, ...]:
    """Folders that `interpreter` (a path, or a name on PATH) imports packages from. Raises LayoutError."""
    found = shutil.which(interpreter)
    if found is None:
        raise LayoutError(f"{interpreter} is no program that can be run")
    # Never resolved here: an environment's python is a link to the one it was made from.
    program = _behind_pyenv_shim(Path(os.path.abspath(found)))
    if not program.resolve().name.startswith("python") or _is_script(program):
        raise LayoutError(f"{program} is no Python itself: what it starts cannot be known without running it")
    folders = list(dict.fromkeys(_environment_packages(program)))
    if not folders:
        raise LayoutError(f"no lib/python*/site-packages beside {program}: it is no environment of a known kind")
    python_path = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return tuple(dict.fromkeys(str(path) for path in (*python_path, *folders, *_linked(folders))))


def _environment_packages(program: Path) -> Iterator[Path]:
    # The order in which Python itself looks for the file that marks an environment.
    for prefix in (program.parent.parent, program.parent):
        marker = prefix / "pyvenv.cfg"
        if marker.is_file():
            settings = _settings(marker)
            version = _minor(settings.get("version") or settings.get("version_info") or "")
            yield from _packages_below(prefix, version)
            if settings.get("include-system-site-packages", "").lower() == "true":
                yield from _base_packages(Path(settings.get("home", "")).parent, version)
            return
    real = program.resolve()
    yield from _base_packages(real.parent.parent, _minor(real.name.removeprefix("python")))


def _base_packages(prefix: Path, version: str) -> Iterator[Path]:
    """Of an installation: the user's own first, as Python has it, then its own, then Debian's."""
    own = list(_packages_below(prefix, version))
    versions = {match[0] for path in own if (match := re.search(r"\d+\.\d+", path.parent.name))}
    if not os.environ.get("PYTHONNOUSERSITE"):
        user = Path(site.getuserbase(), "lib")
        yield from (path for v in versions or {version} if (path := user / f"python{v}" / "site-packages").is_dir())
    yield from own
    for debian in (prefix / "local" / "lib" / f"python{version}", prefix / "lib" / "python3"):
        if (debian / "dist-packages").is_dir():
            yield debian / "dist-packages"


def _packages_below(prefix: Path, version: str) -> list[Path]:
    """site-packages folders, of `version` (3.11) where it is known; of the only one there is where it is not."""
    folders = [path for lib in ("lib", "lib64") for path in prefix.glob(f"{lib}/python{version or '*'}/site-packages")]
    if len({path.parent.name for path in folders}) > 1:
        raise LayoutError(f"{prefix} holds packages of several Pythons, and nothing says which of them is meant")
    return folders


def _linked(folders: list[Path]) -> Iterator[Path]:
    """Folders that .pth files add: packages installed in place (`pip install -e`)."""
    for file in (file for folder in folders for file in sorted(folder.glob("*.pth"))):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line and not line.startswith(("#", "import ", "import\t")) and (linked := file.parent / line).is_dir():
                yield linked


def _behind_pyenv_shim(program: Path) -> Path:
    """A pyenv shim is a script that picks a version; the interpreter that it would start from the working directory."""
    root = program.parent.parent
    if program.parent.name != "shims" or not (root / "versions").is_dir():
        return program
    files = [*(folder / ".python-version" for folder in (Path.cwd(), *Path.cwd().parents)), root / "version"]
    written = (line for file in files if file.is_file() for line in file.read_text(encoding="utf-8").split())
    version = os.environ.get("PYENV_VERSION", "").partition(":")[0] or next(written, "")
    picked = root / "versions" / version / "bin" / program.name
    if not version or not picked.exists():
        raise LayoutError(f"{program} is a pyenv shim, and no version with it is chosen (pyenv local, PYENV_VERSION)")
    return picked


def _is_script(program: Path) -> bool:
    with program.open("rb") as file:
        return file.read(2) == b"#!"


def _settings(marker: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in marker.read_text(encoding="utf-8", errors="replace").splitlines())
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}


def _minor(text: str) -> str:
    """'3.11' of '3.11.7' and '3.11'; '' where there is no such number."""
    match = re.match(r"\d+\.\d+", text)
    return match[0] if match else ""
