"""Leaves the machine behind: the zygote's namespaces and file system, and what an inmate loses on top."""

import os
import resource
import signal
import sys
from dataclasses import dataclass

from rewards.sandbox import kernel
from rewards.sandbox.syscalls import filter_program

INMATE = 1000  # user and group id inside
NOBODY = 65534  # outside, when root starts us: the limit on threads does not hold for root
SYSTEM_PATHS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo")
SYSTEM_FILES = ("/etc/ld.so.cache", "/dev/null", "/dev/urandom")
PACKAGES_OF_DISTRIBUTION = "/usr/lib/python3/dist-packages"
COVER = ("/tmp", "/var", "/usr")  # noqa: S108  a folder to mount over until it has become the root
WORK = "/work"
WORK_OPTIONS = f"size=16m,nr_inodes=1000,mode=0700,uid={INMATE},gid={INMATE}"
MOST_THREADS, MOST_FILES = 64, 64


@dataclass(frozen=True)
class Limits:
    """What one inmate may use."""

    memory_bytes: int
    """Address space, of which the interpreter itself takes about 40 MB."""
    wall_s: float
    file_bytes: int
    """Size of one file, standard output included."""


def enter_namespaces() -> None:
    """User, mount, network, IPC and UTS namespaces of our own. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    go_read, go_write = os.pipe()
    helper = os.fork()
    if helper == 0:  # stays outside, where it may say who is who inside
        os.close(go_write)
        os._exit(_write_maps(os.getppid(), user, group) if os.read(go_read, 1) else 0)
    os.close(go_read)
    try:
        flags = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET
        kernel.unshare(flags | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS)
        os.write(go_write, b"g")
    finally:
        os.close(go_write)
        problem = os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1])
    if problem:
        raise OSError(problem, f"writing the map of user ids: {os.strerror(problem)}")


def _write_maps(pid: int, user: int, group: int) -> int:
    """0, or the errno."""
    users, groups = f"{INMATE} {user} 1", f"{INMATE} {group} 1"
    if user == 0:
        users, groups = f"0 0 1\n{INMATE} {NOBODY} 1", f"0 {group} 1\n{INMATE} {NOBODY} 1"
    try:
        if user != 0:  # the kernel's condition for letting a plain user write the group map
            _write(f"/proc/{pid}/setgroups", "deny")
        _write(f"/proc/{pid}/uid_map", users)
        _write(f"/proc/{pid}/gid_map", groups)
    except OSError as error:
        return error.errno or 1
    return 0


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def change_root(packages: list[str]) -> None:
    """A root that holds the standard library, shared libraries, `packages` and an empty /work; all read-only."""
    targets = [path for path in (*sys.path, os.path.join(sys.base_prefix, "lib"), *SYSTEM_PATHS) if os.path.isdir(path)]
    trees = _outermost([*targets, *packages])
    hidden = [path for path in (*_site_folders(), PACKAGES_OF_DISTRIBUTION) if path not in packages]
    sources = {target: os.path.realpath(target) for target in (*trees, *filter(os.path.exists, SYSTEM_FILES))}
    cover = next(path for path in COVER if os.path.isdir(path))
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", cover, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=0755")
    os.umask(0o022)
    os.mkdir(f"{cover}/old")
    kernel.swap_root(cover, f"{cover}/old")
    for target, source in sources.items():
        _place(target, is_folder=target in trees)
        kernel.mount(f"/old{source}", target, flags=kernel.MS_BIND | kernel.MS_REC)
    for path in filter(os.path.isdir, hidden):
        kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4k,mode=0755")
    kernel.detach("/old")
    os.rmdir("/old")
    os.mkdir(WORK)
    kernel.make_tree_read_only()


def _outermost(paths: list[str]) -> list[str]:
    """Without those that lie in another one."""
    unique = sorted(set(paths))
    return [path for path in unique if not any(path.startswith(f"{other}/") for other in unique)]


def _site_folders() -> list[str]:
    return [os.path.join(path, "site-packages") for path in sys.path]


def _place(target: str, *, is_folder: bool) -> None:
    os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
    if not is_folder:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))


def lock_in(limits: Limits) -> None:
    """Make this process an inmate, but for the filter. It is the first of its PID namespace. Raises OSError."""
    kernel.mount("tmpfs", WORK, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, WORK_OPTIONS)
    os.chdir(WORK)
    os.setsid()  # else kill(0) would reach the worker: a process group spans PID namespaces
    if os.getuid() == 0:
        os.setgroups([])
    os.setresgid(INMATE, INMATE, INMATE)
    os.setresuid(INMATE, INMATE, INMATE)
    kernel.drop_capabilities()
    cpu_s = int(limits.wall_s) + 2  # the supervisor's wall clock comes first; this holds if it cannot run
    for kind, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, MOST_THREADS),
        (resource.RLIMIT_NOFILE, MOST_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))
    kernel.no_new_privileges()
    kernel.die_with_parent(signal.SIGKILL)


def install_filter() -> None:
    """The last step: from here on there is no fork and no way back. Raises OSError."""
    kernel.install_filter(filter_program())
