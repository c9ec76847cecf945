"""The seccomp filter: which system calls an inmate may not make, whatever the namespaces allow."""

import errno
import os
import struct

# name: (x86_64, aarch64). None: that machine has no such call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # Processes: an inmate is one process, so that its memory limit is the limit of everything.
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    # Leaving the process group or its fate: the death of the supervisor must reach us.
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "prctl": (157, 167),
    # Memory that no limit counts.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # The network; socketpair stays, for asyncio.
    "socket": (41, 198),
    # Large parts of the kernel that no test needs, where its holes are found.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
    "modify_ldt": (154, None),
}
CLONE, CLONE3 = (56, 220), (435, 435)
CLONE_THREAD = 0x00010000
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000  # x86_64 has a second set of numbers for the same calls

# struct seccomp_data: nr at 0, arch at 4, args[0] at 16 (low half; both machines are little-endian).
NUMBER, ARCH, FIRST_ARGUMENT = 0, 4, 16
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def filter_program() -> bytes:
    """BPF for this machine. Raises OSError (ENOSYS) for a machine whose numbers are not known here."""
    machine = os.uname().machine
    if machine not in AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"no system-call filter is known for {machine}, only for {', '.join(AUDIT_ARCH)}")
    column = list(AUDIT_ARCH).index(machine)
    lines = [
        _line(LOAD, ARCH),
        _line(JUMP_EQUAL, AUDIT_ARCH[machine], then=1),
        _line(RETURN, KILL_PROCESS),
        _line(LOAD, NUMBER),
    ]
    if machine == "x86_64":
        lines += [_line(JUMP_GREATER_EQUAL, X32_BIT, otherwise=1), _line(RETURN, KILL_PROCESS)]
    for numbers in DENIED.values():
        if (number := numbers[column]) is not None:
            lines += [_line(JUMP_EQUAL, number, otherwise=1), _line(RETURN, ERRNO | errno.EPERM)]
    # clone3 hides its flags in memory; told that it does not exist, libc falls back on clone.
    lines += [_line(JUMP_EQUAL, CLONE3[column], otherwise=1), _line(RETURN, ERRNO | errno.ENOSYS)]
    lines += [
        _line(JUMP_EQUAL, CLONE[column], otherwise=3),
        _line(LOAD, FIRST_ARGUMENT),
        _line(JUMP_BITS, CLONE_THREAD, then=1),
        _line(RETURN, ERRNO | errno.EPERM),
        _line(RETURN, ALLOW),
    ]
    return b"".join(lines)


def _line(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """struct sock_filter: an operation, how many lines to skip if true and if false, and a value."""
    return struct.pack("HBBI", code, then, otherwise, value)
