"""The system calls that Python 3.11 has no functions for. Every one raises OSError with its name."""

import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER = 2

SYS_MOUNT_SETATTR = 442  # the same on every architecture; Linux 5.12
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 0x1, 0x2

CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def _checked(name: str, result: int) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _checked(f"unshare({flags:#x})", libc.unshare(flags))


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    result = libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), options.encode()
    )
    _checked(f"mount {kind or source} on {target}", result)


def swap_root(new: str, old: str) -> None:
    """Make the mount at `new` the root; the root so far is then seen at `old`, a folder in it."""
    _checked(f"pivot_root {new}", libc.pivot_root(new.encode(), old.encode()))
    os.chdir("/")


def detach(target: str) -> None:
    _checked(f"umount {target}", libc.umount2(target.encode(), MNT_DETACH))


def make_tree_read_only() -> None:
    """Every mount below the root: not to be written to, and without set-uid."""
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    result = libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes))
    _checked("mount_setattr", result)


def drop_capabilities() -> None:
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    _checked("capset", libc.capset(header, bytes(24)))


def no_new_privileges() -> None:
    _checked("prctl no_new_privs", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def die_with_parent(signal_number: int) -> None:
    """The kernel sends us this signal when the parent ends. A change of user id would clear it: call it after."""
    _checked("prctl pdeathsig", libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0))


def install_filter(program: bytes) -> None:
    """A seccomp filter (struct sock_filter, packed) for this thread and those that it starts, for good."""
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _checked("prctl seccomp", libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, fprog, 0, 0))
