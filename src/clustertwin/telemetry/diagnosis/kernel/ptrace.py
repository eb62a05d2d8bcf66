"""Stop a thread and read or write it: ptrace of Linux on x86_64, a thread and a request -> what the kernel answers.

All requests for a thread must come from the thread of ours that has attached to it. When that one ends, the kernel
detaches.
"""

from __future__ import annotations

import ctypes
import os
import time

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
GETREGS, GETFPREGS, GET_RSEQ = 12, 14, 0x420F
POKETEXT = 4
REGISTERS = 27  # of eight bytes, in the order of struct user_regs_struct
RSP, RIP, RAX, ORIG_RAX = 19, 16, 10, 15
_WALL = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class CannotAttach(Exception):
    """The process may not be traced, is traced already, or did not stop in time."""


def ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, thread, address, data) < 0:
        raise CannotAttach(os.strerror(ctypes.get_errno()))


def wait_until_stopped(thread: int, end_s: float) -> int:
    """After INTERRUPT: the signal that it was about to get, which DETACH must pass on; 0 if none.

    On a busy node, a thread runs and stops only when its turn comes.
    """
    while True:
        try:
            stopped, status = os.waitpid(thread, os.WNOHANG | _WALL)
        except ChildProcessError as error:
            raise CannotAttach("it has ended") from error
        if stopped and not os.WIFSTOPPED(status):
            raise CannotAttach("it has ended")
        if stopped:
            return 0 if status >> 16 else os.WSTOPSIG(status)
        if time.monotonic() > end_s:
            raise CannotAttach("it did not stop")
        time.sleep(0.0005)


def registers_of(thread: int) -> bytes:
    """The general registers of a stopped thread, in the order of struct user_regs_struct."""
    registers = ctypes.create_string_buffer(8 * REGISTERS)
    ptrace(GETREGS, thread, 0, ctypes.addressof(registers))
    return registers.raw
