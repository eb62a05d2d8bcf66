"""Let programs spin where they are: processes -> threads that run in user space jump to themselves, until it is undone.

Two bytes at the instruction of a running thread are replaced by a jump to itself (`eb fe`), through ptrace. The text of
programs and libraries is private, so no other process sees them. Threads in system calls stay there, as in a real
deadlock; one that returns later is caught then. Only x86_64.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.diagnosis.kernel.ptrace import (
    DETACH,
    INTERRUPT,
    ORIG_RAX,
    POKETEXT,
    REGISTERS,
    RIP,
    SEIZE,
    CannotAttach,
    ptrace,
    registers_of,
    wait_until_stopped,
)
from clustertwin.telemetry.diagnosis.process_files import stat_of, threads_of

JUMP = b"\xeb\xfe"
#: Until a process must have been found in user space; programs that pause are found when they work again.
WITHIN_S = 30.0
_EVERY_S = 0.2  # between two searches for threads that run and do not spin yet
_PATIENCE_S = 1.0  # until the threads of a process have stopped
_UNDO_WITHIN_S = 15.0
_WORD = 8  # what ptrace writes
#: Instructions of one byte: a jump of two would reach into the next one, which another thread may execute.
_ONE_BYTE = frozenset((*range(0x50, 0x60), *range(0x90, 0xA0), *range(0xA4, 0xA8), *range(0xAA, 0xB0),
                       *range(0x6C, 0x70), *range(0xEC, 0xF0), *range(0xF8, 0xFE), 0xC3, 0xC9, 0xCB, 0xCC, 0xD7,
                       0xF1, 0xF4, 0xF5))  # fmt: skip


@dataclass(slots=True)
class Spinning:
    """A process that spins, and what it needs to go on."""

    pid: int
    started_ticks: int  # with the pid it names one process
    replaced: dict[int, bytes] = field(default_factory=dict)  # address -> the two bytes that were there
    threads: set[int] = field(default_factory=set)  # those that spin

    @property
    def is_alive(self) -> bool:
        stat = stat_of(self.pid)
        if stat is None or stat.started_ticks != self.started_ticks:
            return False
        return stat.threads > 1 or stat.state not in "ZX"


@contextmanager
def spinning(processes: Callable[[], Sequence[int]], one: bool = False) -> Iterator[None]:
    """Let these processes spin, or with `one` the first one that is found in user space.

    `processes` is asked again and again: what starts or runs later is caught too.
    """
    if os.uname().machine != "x86_64":
        raise SettingsError(f"the fault spinning is for x86_64; this host is {os.uname().machine}")
    caught: dict[int, Spinning] = {}
    over, problems = threading.Event(), list[str]()

    def catch() -> None:
        pids = [pid for pid in caught if caught[pid].is_alive] if one else []
        for pid in pids or processes():
            try:
                catch_process(pid, caught)
            except CannotAttach as error:
                problems[:] = [str(error)]
            if one and caught:
                return

    def keep_catching() -> None:
        while not over.wait(_EVERY_S):
            catch()

    keeper = threading.Thread(target=keep_catching, daemon=True)
    try:
        end_s = time.monotonic() + WITHIN_S
        while not caught:
            catch()
            if time.monotonic() > end_s:
                why = f"; ptrace: {problems[0]}" if problems else ""
                raise SettingsError(f"no process of the job was found in user space within {WITHIN_S:.0f} s{why}")
            time.sleep(0 if caught else 0.01)
        keeper.start()
        yield
    finally:
        over.set()
        if keeper.ident is not None:
            keeper.join()
        for process in caught.values():
            release(process)


def catch_process(pid: int, caught: dict[int, Spinning]) -> None:
    """Let the threads of a process that run in user space spin. Those that spin already are not stopped again."""
    stat = stat_of(pid)
    if stat is None:
        return
    known = caught.get(pid)
    process = known if known and known.started_ticks == stat.started_ticks else Spinning(pid, stat.started_ticks)
    running = [thread for thread in threads_of(pid) if thread not in process.threads and _runs(pid, thread)]
    if running:
        _in_a_thread(lambda: _with_stopped(running, lambda stopped: _write_jumps(process, stopped)))
    if process.threads:
        caught[pid] = process


def release(process: Spinning) -> None:
    """Put the bytes back. A process that has ended, or executes another program since, is left alone."""
    end_s = time.monotonic() + _UNDO_WITHIN_S
    while process.replaced and process.is_alive:
        with suppress(CannotAttach):  # evidence of the process is being taken: try again
            threads = [t for t in threads_of(process.pid) if t in process.threads or _runs(process.pid, t)]
            _stop_all_and_write_back(process, threads)
        if time.monotonic() > end_s:
            return  # its group is ended after the run
        time.sleep(0.01)


def _stop_all_and_write_back(process: Spinning, threads: list[int]) -> None:
    """A thread that executes these bytes while they are written could see one of them alone."""
    _in_a_thread(lambda: _with_stopped(threads, lambda stopped: _write_back(process, stopped), every=True))


def _runs(pid: int, thread: int) -> bool:
    stat = stat_of(pid, thread)
    return stat is not None and stat.state == "R"


def _with_stopped(threads: Sequence[int], then: Callable[[list[int]], None], every: bool = False) -> None:
    """Do something while threads are stopped. One that does not stop is left out, or with `every` an error."""
    stopped: dict[int, int] = {}  # thread -> the signal that it is about to get
    end_s = time.monotonic() + _PATIENCE_S
    try:
        problem: CannotAttach | None = None
        for thread in threads:
            try:
                ptrace(SEIZE, thread)
                ptrace(INTERRUPT, thread)
                stopped[thread] = wait_until_stopped(thread, end_s)
            except CannotAttach as error:
                problem = error
        if problem and (every or not stopped):
            raise problem
        if stopped:
            then(list(stopped))
    finally:
        for thread, signal in stopped.items():
            with suppress(CannotAttach):
                ptrace(DETACH, thread, 0, signal)


def _write_jumps(process: Spinning, stopped: list[int]) -> None:
    memory = _open_memory(process.pid)
    try:
        for thread in stopped:
            registers = struct.unpack(f"<{REGISTERS}Q", registers_of(thread))
            address = registers[RIP]
            if registers[ORIG_RAX] < 1 << 63:
                continue  # in a system call; -1 otherwise
            if address not in process.replaced:
                before = os.pread(memory, _WORD, address)
                overlaps = any(abs(address - other) == 1 for other in process.replaced)
                if len(before) < _WORD or before[0] in _ONE_BYTE or overlaps:
                    continue  # it is found elsewhere later
                ptrace(POKETEXT, thread, address, int.from_bytes(JUMP + before[2:], "little"))
                process.replaced[address] = before[:2]
            process.threads.add(thread)
    except OSError as error:
        raise CannotAttach(str(error.strerror)) from error
    finally:
        os.close(memory)


def _write_back(process: Spinning, stopped: list[int]) -> None:
    memory = _open_memory(process.pid)
    try:
        for address, before in list(process.replaced.items()):
            now = b""
            with suppress(OSError):  # the process executes another program
                now = os.pread(memory, _WORD, address)
            if now[:2] == JUMP:
                ptrace(POKETEXT, stopped[0], address, int.from_bytes(before + now[2:], "little"))
            del process.replaced[address]
    finally:
        os.close(memory)


def _open_memory(pid: int) -> int:
    try:
        return os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotAttach(error.strerror or "it has ended") from error


def _in_a_thread(work: Callable[[], None]) -> None:
    """In a thread that ends: the kernel then detaches from what did not stop in time."""
    problems: list[CannotAttach] = []

    def attach() -> None:
        try:
            work()
        except CannotAttach as error:
            problems.append(error)

    ours = threading.Thread(target=attach)
    ours.start()
    ours.join()
    if problems:
        raise problems[0]
