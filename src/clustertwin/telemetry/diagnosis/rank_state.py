"""What one process does: two looks and two stacks -> one word of `STATES`, and the MPI call that it is in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clustertwin.telemetry.diagnosis.evidence import Stack
from clustertwin.telemetry.diagnosis.kernel.system_calls import FILE_CALLS, SLEEPS
from clustertwin.telemetry.diagnosis.process_files import TICK_S, ProcessLook
from clustertwin.telemetry.diagnosis.running_threads import RunningThreads

#: word -> its meaning
STATES: dict[str, str] = {
    "stopped": "a signal, a debugger or the freezer of its cgroup has stopped it",
    "blocked": "it is blocked on a file or a socket",
    "waits-in-mpi": "it waits in MPI",
    "communicates": "it is in MPI, in different calls",
    "spins": "it uses CPU time at the same place and computes nothing",
    "computes": "it uses CPU time outside MPI",
    "starved": "it can run, and used hardly any CPU time",
    "sleeps": "it sleeps: for a time, or until another thread, a child or an event wakes it",
    "ended": "it has ended",
    "unknown": "it could not be read twice, or runs and its stack could not be read",
}
#: Less CPU time than this is a heartbeat, and no work. On a busy node, work does not get much more.
WORK_S = 0.03
_MPI = re.compile(r"^(?:P?MPI_([A-Z]\w*?)(?:_c)?|p?mpi_([a-z]\w*?)_{1,2})$")
_NAME = re.compile(r" \[.*\]$")  # after the name of a function: its module and offset
#: Frames inside mpi4py that name the call, where native frames cannot be read.
_MPI4PY = re.compile(r"^__pyx_\w*?_\d+(?:Comm|Intracomm|Request|Win|File)_\d+([A-Z][a-z]\w*)$")


@dataclass(frozen=True, slots=True)
class TwoLooks:
    """One process at the beginning and at the end of the window."""

    first: ProcessLook | None
    last: ProcessLook | None
    stacks: tuple[Stack, ...]
    memory: tuple[int | None, ...] = ()  # signatures of its private memory and of the registers of its running threads
    running: tuple[RunningThreads, ...] = ()  # these threads
    unread: bool = False  # its stack was not read because the budget was spent
    beside: tuple[tuple[float, int, bool], ...] = ()  # the rank's other processes: CPU time, bytes of I/O, one can run


def mpi_call(stack: Stack) -> str:
    """The outermost MPI function: the call of the program.

    >>> mpi_call(Stack(native=("__sched_yield", "?", "PMPI_Allreduce_c", "solve", "main")))
    'MPI_Allreduce'
    """
    for frame in reversed(stack.native):
        if match := _MPI.match(_NAME.sub("", frame)):
            name = match[1] or match[2]
            return f"MPI_{name[0].upper()}{name[1:]}"
        if match := _MPI4PY.match(frame):
            return f"MPI_{match[1]}"
    return ""


def caller(stack: Stack) -> str:
    """Where the program stands: its Python line, or the function that called MPI."""
    if stack.python:
        return stack.python[0]
    names = [_NAME.sub("", frame) for frame in stack.native]
    inside = [i for i, frame in enumerate(names) if _MPI.match(frame)]
    rest = names[inside[-1] + 1 :] if inside else names
    return next((frame for frame in rest if frame != "?"), "")


def state_of(looks: TwoLooks) -> str:
    """The word for what the process did between the looks."""
    first, last = looks.first, looks.last
    if last is None:
        return "ended"
    if first is None or first.started_ticks != last.started_ticks:
        return "unknown"
    if first.is_frozen or last.is_frozen:
        return "stopped" if last.is_frozen else "unknown"
    if last.state in "Tt":
        if first.state not in "Tt":
            return "unknown"
        # A process that tools such as cpulimit stop and continue is often found stopped, and runs in between.
        return "stopped" if first.ran_s == last.ran_s and first.cpu_s == last.cpu_s else "computes"
    calls = {mpi_call(stack) for stack in looks.stacks if stack.native}
    idle = is_idle(first, last)
    if calls and "" not in calls:
        if last.other_cpu_s - first.other_cpu_s > WORK_S:
            return "computes"  # in another thread
        if idle and last.other_can_run:
            return "starved"
        places = {caller(stack) for stack in looks.stacks if stack.native}
        return "waits-in-mpi" if len(calls) == 1 and len(places) == 1 else "communicates"
    if idle and _others_work(looks):
        return "sleeps"  # a program that the rank has started works
    if idle and last.other_can_run is not False:
        return "starved" if last.other_can_run else "unknown"
    if idle and first.state == last.state == "D":
        return "blocked"
    if idle and first.waiting is not None and first.waiting == last.waiting and last.state in "SD":
        if first.waiting.call in FILE_CALLS and first.io_bytes == last.io_bytes:
            return "blocked"
        return "sleeps"
    if idle and last.waiting is not None and last.waiting.call in SLEEPS:
        return "sleeps"
    if _stands_still(looks):
        return "spins"
    if not calls and (looks.unread if not idle else last.state == "R"):
        return "unknown"  # it waits in MPI or computes: only its stack would tell. On a busy node it may not even run
    if not idle:
        return "computes"
    return "starved" if last.state == "R" else "sleeps"


def is_idle(first: ProcessLook, last: ProcessLook) -> bool:
    """Whether the threads of a process used hardly any CPU time."""
    return last.cpu_s - first.cpu_s < 2.5 * TICK_S


def _others_work(looks: TwoLooks) -> bool:
    """Whether another process of the rank used CPU time or did I/O, also one that has ended since."""
    first, last = looks.first, looks.last
    assert first is not None
    assert last is not None
    if last.other_cpu_s - first.other_cpu_s > WORK_S:
        return True
    if len(looks.beside) < 2:
        return False
    (cpu_s, io_bytes, runs), (later_cpu_s, later_io_bytes, later_runs) = looks.beside
    return later_cpu_s - cpu_s > WORK_S or later_io_bytes != io_bytes or runs or later_runs


def _stands_still(looks: TwoLooks) -> bool:
    """CPU time, and yet the same function, no I/O, no page fault, no write to memory and no change of registers.

    The registers of every thread that used CPU time must be known, and each of these threads must have run: one that
    waits for a CPU changes nothing either.
    """
    first, last = looks.first, looks.last
    assert first is not None
    assert last is not None
    if is_idle(first, last) or last.faults != first.faults or last.io_bytes != first.io_bytes:
        return False
    if len(looks.stacks) < 2 or len({caller(stack) for stack in looks.stacks}) != 1:
        return False
    if len(looks.memory) < 2 or None in looks.memory or len(set(looks.memory)) != 1:
        return False
    before, after = looks.running
    if before.cpu_s.keys() != after.cpu_s.keys():
        return False
    rounded_s = TICK_S * len(after.cpu_s)  # each time is a whole number of ticks
    return (
        all(after.cpu_s[thread] > cpu_s for thread, cpu_s in before.cpu_s.items())
        and after.elsewhere_s - before.elsewhere_s <= WORK_S + rounded_s
    )
