"""The threads of a process that can run: a pid -> a checksum of their registers, and the CPU time of each.

A thread that only waits in a loop keeps the registers that a computation uses. The first thread of a process often
sleeps until the others have ended, so the others count as much. The loops in which OpenMP waits count their turns, but
no thread computes inside such a library.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from clustertwin.telemetry.diagnosis.kernel.ptrace import CannotAttach
from clustertwin.telemetry.diagnosis.process_files import maps_of, stat_of, threads_of
from clustertwin.telemetry.diagnosis.stack_snapshot import snapshots

#: Each is stopped for a fraction of a millisecond, one after the other.
MOST_RUNNING = 64
MOST_THREADS = 4096
_OPENMP = re.compile(rb"/lib(?:gomp|omp|iomp5)(?:-[0-9a-f]+)?\.so[^/]*$")  # wheels add a hash to the name


@dataclass(frozen=True, slots=True)
class RunningThreads:
    """At one moment; only threads whose registers could be read."""

    cpu_s: Mapping[int, float]  # thread -> its CPU time so far
    elsewhere_s: float  # that of the other threads, and of children that have ended
    registers: int  # a checksum of the registers of all of them
    kernel_writes: tuple[tuple[int, int], ...]  # where the kernel keeps the CPU of each: begin and end of the memory
    stopped_s: float  # in total


def running_threads(pid: int) -> RunningThreads | None:
    """None if no thread runs, if too many do, or if one of them cannot be stopped."""
    threads, whole = sorted(threads_of(pid)), stat_of(pid)
    if whole is None or len(threads) > MOST_THREADS:
        return None
    cpu_s = {thread: stat.cpu_s for thread in threads if (stat := stat_of(pid, thread)) and stat.state == "R"}
    if not 0 < len(cpu_s) <= MOST_RUNNING:
        return None
    try:
        moments = snapshots(list(cpu_s), stack_bytes=0)
    except (CannotAttach, NotImplementedError):
        return None
    waits = [
        tuple(int(address, 16) for address in words[0].split(b"-"))
        for words in maps_of(pid)
        if len(words) > 5 and b"x" in words[1] and _OPENMP.search(words[5])
    ]
    registers = 0
    for thread, moment in zip(cpu_s, moments, strict=True):
        in_openmp = any(begin <= moment.instruction < end for begin, end in waits)
        registers = zlib.crc32(b"%d:%d" % (thread, 0 if in_openmp else moment.register_checksum), registers)
    return RunningThreads(
        cpu_s,
        elsewhere_s=whole.cpu_s + whole.children_cpu_s - sum(cpu_s.values()),
        registers=registers,
        kernel_writes=tuple(moment.rseq for moment in moments),
        stopped_s=sum(moment.stopped_s for moment in moments),
    )
