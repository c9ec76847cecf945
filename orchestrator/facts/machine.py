"""This machine as its kernel tells it: cores, free space, the environment that children inherit."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.facts.types import EnvironmentSize


def num_cpus(root: Path = Path("/")) -> int:
    """Cores that this process may keep busy: its affinity, and the quota that a container sets. At least 1."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, min((allowed, *(int(quota) for quota in _quotas(root)))))


def _quotas(root: Path) -> Iterator[float]:
    """Cores granted by this process's control group and by each above it, in both versions of control groups."""
    for group in _groups(root):
        first, second = _words(group / "cpu.max"), ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        for granted in (first, [word for name in second for word in _words(group / name)]):
            # "max" (version 2) and -1 (version 1) mean that there is no limit.
            if len(granted) == 2 and all(word.isdigit() for word in granted):
                yield int(granted[0]) / int(granted[1])


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the groups that may limit the cores: this process's, then its parents."""
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            mount = root / "sys/fs/cgroup"
        elif "cpu" in controllers.split(","):
            mount = root / "sys/fs/cgroup" / controllers
            mount = mount if mount.is_dir() else root / "sys/fs/cgroup/cpu"
        else:
            continue
        folder = mount / group.strip("/")
        yield from (one for one in (folder, *folder.parents) if one.is_relative_to(mount))


def free_bytes(path: Path) -> int | str:
    """Free space for this user where `path` is, or, where it is not there yet, would be made."""
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = os.statvfs(place)
    except OSError as error:
        return f"{place} cannot be measured: {error.strerror}"
    return found.f_bavail * found.f_frsize


def shm_free_bytes(shm: Path = Path("/dev/shm")) -> int | str:  # noqa: S108 - measured, never written
    return free_bytes(shm) if shm.is_dir() else f"there is no {shm}"


def environment_size(environment: Mapping[bytes, bytes]) -> EnvironmentSize:
    """Names and bytes, never values. A child gets each variable as NAME=VALUE and a zero byte."""
    sizes = {name: len(name) + len(value) + 2 for name, value in environment.items()}
    longest = max(sizes, key=lambda name: sizes[name], default=b"")
    return EnvironmentSize(
        variables=len(sizes),
        total_bytes=sum(sizes.values()),
        longest_name=os.fsdecode(longest),
        longest_bytes=sizes.get(longest, 0),
    )


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    """[] where there is no such file: then this version of control groups, or this limit, is not in use."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
