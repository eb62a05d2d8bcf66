"""Copy the registers and the stack of a process: a pid -> a core file without its heap, for eu-stack to unwind later.

The process is stopped only while its registers and at most `MAX_STACK` bytes are copied, a fraction of a millisecond on
a free processor. To unwind and to name functions takes twenty times as long, and happens after the process runs again.
Only x86_64. On another machine `snapshots` raises `NotImplementedError`.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from clustertwin.telemetry.diagnosis.kernel.ptrace import (
    DETACH,
    GET_RSEQ,
    GETFPREGS,
    INTERRUPT,
    ORIG_RAX,
    RAX,
    REGISTERS,
    RIP,
    RSP,
    SEIZE,
    CannotAttach,
    ptrace,
    registers_of,
    wait_until_stopped,
)
from clustertwin.telemetry.diagnosis.process_files import maps_of

MAX_STACK = 128 << 10
PATIENCE_S = 0.5  # until all threads have stopped once
_RSEQ = struct.Struct("<QIIII")  # since Linux 5.13
_MOST_RSEQ = 256
#: r15 to rbx, r11 to rdi: all that a computation uses. Where in its loop it is (rip, rsp, flags) says nothing.
_COMPUTING = range(15)
_FLOATING = slice(32, 416)  # the x87 and SSE registers of struct user_fpregs_struct, which has 512 bytes
_PAGE = 4096
MOST_MAPPINGS = 4096
_ELF_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEAD = struct.Struct("<IIQQQQQQ")


@dataclass(frozen=True, slots=True)
class _Mapping:
    begin: int
    end: int
    flags: int
    offset: int
    path: str


@dataclass(frozen=True, slots=True)
class StackSnapshot:
    """A stopped moment of a thread."""

    registers: bytes
    floating: bytes
    stack_begin: int
    stack: bytes
    stopped_s: float
    rseq: tuple[int, int] = (0, 0)

    @property
    def instruction(self) -> int:
        """The address of the instruction that it is at."""
        return int(struct.unpack_from("<Q", self.registers, 8 * RIP)[0])

    @property
    def register_checksum(self) -> int:
        """Of the registers that a loop which computes changes, and a loop which only waits does not.

        While a process is in the kernel, rax has no value of the program.
        """
        words = list(struct.unpack(f"<{REGISTERS}Q", self.registers))
        if words[ORIG_RAX] < 1 << 63:  # in a system call; -1 otherwise
            words[RAX] = 0
        kept = struct.pack(f"<{len(_COMPUTING)}Q", *(words[i] for i in _COMPUTING))
        return zlib.crc32(self.floating[_FLOATING], zlib.crc32(kept))


def snapshots(threads: Sequence[int], stack_bytes: int = MAX_STACK) -> list[StackSnapshot]:
    """Stop each thread, copy, and let it run; the number of a process is that of its first thread.

    This happens in a thread of our own that ends: the kernel then detaches from one that did not stop in time.
    """
    result: list[list[StackSnapshot] | Exception] = []

    def attach() -> None:
        try:
            end_s = time.monotonic() + PATIENCE_S
            result.append([_snapshot(thread, stack_bytes, end_s) for thread in threads])
        except (CannotAttach, NotImplementedError) as error:
            result.append(error)

    ours = threading.Thread(target=attach)
    ours.start()
    ours.join()
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def _snapshot(pid: int, stack_bytes: int, end_s: float) -> StackSnapshot:
    if os.uname().machine != "x86_64":
        raise NotImplementedError
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotAttach(error.strerror or "it has ended") from error
    try:
        ptrace(SEIZE, pid)
    except CannotAttach:
        os.close(memory)
        raise
    floating, signal = ctypes.create_string_buffer(512), 0
    ptrace(INTERRUPT, pid)
    try:
        signal = wait_until_stopped(pid, end_s)
        stopped_s = time.monotonic()
        registers = registers_of(pid)
        ptrace(GETFPREGS, pid, 0, ctypes.addressof(floating))
        rseq = _rseq(pid)
        (top,) = struct.unpack_from("<Q", registers, 8 * RSP)
        stack = os.pread(memory, stack_bytes, top & ~(_PAGE - 1))
    except OSError as error:
        raise CannotAttach(str(error)) from error
    finally:
        with suppress(CannotAttach):
            ptrace(DETACH, pid, 0, signal)
        os.close(memory)
    page = top & ~(_PAGE - 1)
    return StackSnapshot(registers, floating.raw, page, stack, time.monotonic() - stopped_s, rseq)


def _rseq(pid: int) -> tuple[int, int]:
    """Where the kernel writes the CPU that a thread runs on (restartable sequences); (0, 0) if nowhere."""
    answer = ctypes.create_string_buffer(_RSEQ.size)
    try:
        ptrace(GET_RSEQ, pid, _RSEQ.size, ctypes.addressof(answer))
    except CannotAttach:
        return 0, 0
    begin, size, *_ = _RSEQ.unpack(answer.raw)
    return (begin, begin + min(size, _MOST_RSEQ)) if begin else (0, 0)


def core_file(pid: int, moment: StackSnapshot) -> bytes:
    """An ELF core with the registers, the stack, and the first page of each mapped file, by which it is found."""
    mappings = _mappings(pid)
    status = bytearray(336)  # struct elf_prstatus
    struct.pack_into("<i", status, 32, pid)
    status[112 : 112 + len(moment.registers)] = moment.registers
    process = bytearray(136)  # struct elf_prpsinfo
    struct.pack_into("<i", process, 24, pid)
    notes = (
        _note(3, bytes(process))
        + _note(1, bytes(status))
        + _note(6, _auxv(pid))
        + _note(0x46494C45, _file_note(mappings))
    )
    segments: list[tuple[int, int, int, bytes]] = [
        (moment.stack_begin, moment.stack_begin + len(moment.stack), 6, moment.stack)
    ]
    for mapping in mappings:
        if mapping.path.startswith("/"):
            segments.append((mapping.begin, mapping.end, mapping.flags, _first_page(mapping)))
    segments.sort(key=lambda segment: segment[0])
    count = 1 + len(segments)
    at = _ELF_HEAD.size + count * _PROGRAM_HEAD.size
    heads = [_PROGRAM_HEAD.pack(4, 0, at, 0, 0, len(notes), 0, 4)]
    body = [notes]
    at += len(notes)
    for begin, end, flags, data in segments:
        pad = -at % _PAGE
        body.append(b"\0" * pad + data)
        at += pad
        heads.append(_PROGRAM_HEAD.pack(1, flags, at, begin, 0, len(data), end - begin, _PAGE))
        at += len(data)
    ident = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    head = _ELF_HEAD.pack(ident, 4, 62, 1, 0, _ELF_HEAD.size, 0, 0, 64, 56, count, 0, 0, 0)
    return head + b"".join(heads) + b"".join(body)


def _mappings(pid: int) -> list[_Mapping]:
    mappings = []
    for words in maps_of(pid)[:MOST_MAPPINGS]:
        begin, end = (int(part, 16) for part in words[0].split(b"-"))
        rights = words[1].decode("ascii", "replace")
        flags = 4 * (rights[0] == "r") + 2 * (rights[1] == "w") + (rights[2] == "x")
        path = os.fsdecode(words[5]) if len(words) > 5 else ""
        mappings.append(_Mapping(begin, end, flags, int(words[2], 16), path))
    if not mappings:
        raise CannotAttach("it has ended")
    return mappings


def _first_page(mapping: _Mapping) -> bytes:
    if mapping.offset or mapping.path.startswith(("/dev/", "/SYSV", "/memfd")):
        return b""
    try:
        # The owner of the process may have put a pipe in this place: to open it would block, and to read from it too.
        descriptor = os.open(mapping.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return b""
    try:
        page = os.read(descriptor, _PAGE) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return page if page.startswith(b"\x7fELF") else b""


def _file_note(mappings: list[_Mapping]) -> bytes:
    named = [mapping for mapping in mappings if mapping.path.startswith("/")]
    table = b"".join(struct.pack("<QQQ", m.begin, m.end, m.offset // _PAGE) for m in named)
    names = b"".join(os.fsencode(m.path) + b"\0" for m in named)
    return struct.pack("<QQ", len(named), _PAGE) + table + names


def _auxv(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/auxv", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _note(kind: int, data: bytes) -> bytes:
    name = b"CORE\0\0\0\0"
    return struct.pack("<III", 5, len(data), kind) + name + data + b"\0" * (-len(data) % 4)
