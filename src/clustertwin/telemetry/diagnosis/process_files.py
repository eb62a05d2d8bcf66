"""One process through /proc, without stopping it: a pid -> a `ProcessLook`, or None if it has ended.

Every file is optional. A process may end between two reads, and a kernel or a missing right may refuse one. The owner
of a process chooses its name and how large its files are: at most `MAX_FILE` bytes of one are read.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from dataclasses import dataclass

from clustertwin.telemetry.diagnosis.evidence import Waiting, clean
from clustertwin.telemetry.diagnosis.kernel.system_calls import FIRST_IS_DESCRIPTOR, name_of

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
# After the line below the name of the program, which may contain anything.
_EXEC_START = re.compile(rb"\n-{10,}\nse\.exec_start\s*:\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)")
_KERNEL_FRAME = re.compile(rb"\]\s+(\w+)")
#: The most bytes of an environment that are searched for the rank. They are not kept.
MAX_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What one small file says of a process, or of one of its threads."""

    state: str  # R, S, D, T, t, Z, …
    parent: int
    faults: int
    cpu_s: float
    children_cpu_s: float  # of children that have ended, if the process waited for them
    threads: int
    started_ticks: int  # since boot; with the pid it names one process, also after the pid is used again
    cpu: int  # on which it ran last


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """The kernel's view of a process at one moment. State, call and stack are those of its first thread."""

    pid: int
    started_ticks: int
    state: str
    parent: int
    cpu_s: float  # of all threads
    other_cpu_s: float  # of its other threads, and of children that have ended
    faults: int
    io_bytes: int
    wchan: str
    waiting: Waiting | None
    kernel_stack: tuple[str, ...]
    ran_s: float | None  # when it ran last, on the clock of that CPU's scheduler (`scheduler_clock_s`)
    cpu: int  # on which it ran last
    threads: int = 1
    is_frozen: bool = False  # by the freezer of its cgroup
    other_can_run: bool | None = False  # whether another thread uses a CPU or waits for one; None: there are too many


def stat_of(pid: int, thread: int | None = None) -> ProcessStat | None:
    """The state and the times of a process, or of a thread. None: it has ended, and nobody keeps its number."""
    stat = _read(pid, "stat" if thread is None else f"task/{thread}/stat")
    # The name of a program may contain blanks and parentheses; the fields begin after the last one.
    fields = stat[stat.rfind(b")") + 2 :].split()
    if len(fields) < 37:
        return None
    return ProcessStat(
        state=fields[0].decode("ascii", "replace"),
        parent=int(fields[1]),
        faults=int(fields[7]) + int(fields[9]),
        cpu_s=(int(fields[11]) + int(fields[12])) * TICK_S,
        children_cpu_s=(int(fields[13]) + int(fields[14])) * TICK_S,
        threads=int(fields[17]),
        started_ticks=int(fields[19]),
        cpu=int(fields[36]),
    )


def look(pid: int) -> ProcessLook | None:
    """Read the files of a process. None: it has ended. A zombie with other threads is one whose first thread ended."""
    stat = stat_of(pid)
    if stat is None or (stat.state in ("Z", "X") and stat.threads < 2):
        return None
    started = _EXEC_START.search(_read(pid, "sched")[:2048])
    return ProcessLook(
        pid=pid,
        started_ticks=stat.started_ticks,
        state=stat.state,
        parent=stat.parent,
        cpu_s=stat.cpu_s,
        other_cpu_s=stat.children_cpu_s + (_other_threads_s(pid, stat.cpu_s) if stat.threads > 1 else 0.0),
        faults=stat.faults,
        io_bytes=sum(_numbers(_read(pid, "io"), (b"rchar", b"wchar"))),
        wchan=clean(_read(pid, "wchan").decode("ascii", "replace").strip("0\n ")),
        waiting=waiting_of(pid) if stat.state in "SDTt" else None,
        kernel_stack=tuple(
            clean(name.decode("ascii", "replace")) for name in _KERNEL_FRAME.findall(_read(pid, "stack"))
        ),
        ran_s=float(started[1]) / 1000 if started else None,
        cpu=stat.cpu,
        threads=stat.threads,
    )


def other_thread_can_run(pid: int, most: int) -> bool | None:
    """Whether a thread other than the first one uses a CPU or waits for one; None if there are more than `most`."""
    threads = threads_of(pid)
    if any((stat := stat_of(pid, thread)) and stat.state == "R" for thread in threads[:most] if thread != pid):
        return True
    return None if len(threads) > most else False


def threads_of(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def ignores_children(pid: int) -> bool:
    """Whether a process ignores SIGCHLD: the kernel then does not count the CPU time of its children as its own."""
    found = re.search(rb"\nSigIgn:\s*([0-9a-f]{1,16})\n", _read(pid, "status"))
    return found is not None and bool(int(found[1], 16) >> (signal.SIGCHLD - 1) & 1)


def _other_threads_s(pid: int, cpu_s: float) -> float:
    first = stat_of(pid, pid)
    return max(cpu_s - first.cpu_s, 0.0) if first else 0.0


def scheduler_clock_s(cpu: int) -> float | None:
    """The clock of this CPU's scheduler now; None if this thread may not run there.

    Each CPU has its own. It begins at boot, and stands still during interrupts and while a hypervisor takes the CPU
    away, so after months they differ by hours.
    """
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cpu})  # the kernel moves this thread before the call returns
    except OSError:
        return None
    try:
        started = _EXEC_START.search(_read(threading.get_native_id(), "sched")[:2048])
    finally:
        os.sched_setaffinity(0, allowed)
    return float(started[1]) / 1000 if started else None


def waiting_of(pid: int) -> Waiting | None:
    """The system call of a blocked process; None if it runs, or may not be read."""
    words = _read(pid, "syscall").split()
    if len(words) < 2 or not words[0].isdigit():
        return None
    call = name_of(int(words[0]))
    target = _descriptor(pid, int(words[1], 16)) if call in FIRST_IS_DESCRIPTOR else ""
    return Waiting(call, target)


def variables(pid: int, names: tuple[bytes, ...]) -> dict[bytes, bytes]:
    """The values of these variables of a process, and of no others."""
    found: dict[bytes, bytes] = {}
    for entry in _environment(pid).split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name in names:
            found[name] = value[:64]
    return found


def _environment(pid: int) -> bytes:
    """As any thread shows it: a first thread that has ended does not."""
    if text := _read(pid, "environ"):
        return text
    others = (thread for thread in threads_of(pid)[:8] if thread != pid)
    return next((text for thread in others if (text := _read(pid, f"task/{thread}/environ"))), b"")


def owner_of(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def maps_mpi(pid: int) -> bool:
    """Whether an MPI library is mapped into the process."""
    maps = _read(pid, "maps")
    return b"libmpi" in maps or b"libpmpi" in maps


def maps_of(pid: int) -> list[list[bytes]]:
    """The mappings of a process as (range, rights, offset, device, inode, path or nothing), as far as they are read."""
    lines = _read(pid, "maps").splitlines(keepends=True)
    return [words for line in lines if line.endswith(b"\n") and len(words := line.rstrip(b"\n").split(None, 5)) > 4]


def _descriptor(pid: int, number: int) -> str:
    try:
        target = os.readlink(f"/proc/{pid}/fd/{number}")
    except OSError:
        return ""
    if target.startswith("socket:["):
        return _socket(pid, target[len("socket:[") : -1]) or target
    return clean(target)


def _socket(pid: int, inode: str) -> str:
    """The peer of a TCP socket over IPv4; empty for any other."""
    for line in _read(pid, "net/tcp").decode("ascii", "replace").splitlines()[1:4096]:
        words = line.split()
        if len(words) > 9 and words[9] == inode:
            address, port = words[2].split(":")
            octets = bytes.fromhex(address)[::-1]
            return f"socket to {'.'.join(map(str, octets))}:{int(port, 16)}"
    return ""


def _numbers(text: bytes, names: tuple[bytes, ...]) -> list[int]:
    values = []
    for line in text.splitlines():
        name, _, value = line.partition(b":")
        if name in names and value.strip().isdigit():
            values.append(int(value))
    return values


def _read(pid: int, name: str) -> bytes:
    """At most `MAX_FILE` bytes of a file of a process; nothing if it has ended or may not be read."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    data = b""
    try:
        while len(data) < MAX_FILE and (more := os.read(descriptor, MAX_FILE - len(data))):
            data += more
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return data
