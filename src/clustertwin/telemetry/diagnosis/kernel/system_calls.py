"""Numbers of the system calls in which programs block, by machine: 0 -> "read" on x86_64.

Only these can be named. `FIRST_IS_DESCRIPTOR` lists those whose first argument is a file or a socket.
"""

from __future__ import annotations

import os

_X86_64 = {
    0: "read", 1: "write", 2: "open", 4: "stat", 5: "fstat", 7: "poll", 17: "pread64", 18: "pwrite64", 19: "readv",
    20: "writev", 23: "select", 24: "sched_yield", 34: "pause", 35: "nanosleep", 42: "connect", 43: "accept",
    44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync",
    75: "fdatasync", 78: "getdents", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 202: "futex", 217: "getdents64",
    219: "restart_syscall", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat",
    262: "newfstatat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4",
    295: "preadv", 296: "pwritev", 332: "statx",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 25: "fcntl", 32: "flock", 56: "openat", 61: "getdents64", 63: "read", 64: "write", 65: "readv",
    66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 72: "pselect6", 73: "ppoll",
    79: "newfstatat", 80: "fstat", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 124: "sched_yield", 128: "restart_syscall", 133: "rt_sigsuspend",
    137: "rt_sigtimedwait", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    212: "recvmsg", 242: "accept4", 260: "wait4", 291: "statx",
}  # fmt: skip
_TABLES = {"x86_64": _X86_64, "aarch64": _AARCH64}

FIRST_IS_DESCRIPTOR = frozenset(
    {
        "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "fsync", "fdatasync", "flock",
        "fcntl", "fstat", "getdents", "getdents64", "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg",
        "recvmsg",
    }
)  # fmt: skip
#: Calls on files that return when a device or a peer delivers, and not after a time.
FILE_CALLS = FIRST_IS_DESCRIPTOR | {"open", "openat", "stat", "newfstatat", "statx"}
#: Calls that return by themselves after a time, or that wait for an event of any kind. A call with a limit of time that
#: was interrupted, as by a look, goes on as restart_syscall.
SLEEPS = frozenset({"nanosleep", "clock_nanosleep", "pause", "rt_sigtimedwait", "rt_sigsuspend", "restart_syscall"})
#: Calls that wait for a child.
WAITS = frozenset({"wait4", "waitid"})


def name_of(number: int, machine: str = os.uname().machine) -> str:
    """The name of a call.

    >>> name_of(0, "x86_64")
    'read'
    """
    return _TABLES.get(machine, {}).get(number, f"syscall {number}")
