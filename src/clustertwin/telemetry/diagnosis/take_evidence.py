"""Take the evidence of a job within a budget: its processes -> two looks at each, and the finding's raw material.

The first look is at /proc only and costs about a millisecond per process. Stacks are taken at both ends of the window
while the budget of CPU time lasts. A process without stacks keeps its looks, and says why it has no stack.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from clustertwin.telemetry.diagnosis import job_activity, memory_signatures
from clustertwin.telemetry.diagnosis.evidence import MOST_PROCESSES, JobEvidence, ProcessEvidence, Stack
from clustertwin.telemetry.diagnosis.job_processes import JobProcesses, RankProcess, is_same
from clustertwin.telemetry.diagnosis.kernel import job_cgroup, network_traffic
from clustertwin.telemetry.diagnosis.process_files import ProcessLook, look, other_thread_can_run, scheduler_clock_s
from clustertwin.telemetry.diagnosis.rank_state import WORK_S, TwoLooks, mpi_call, state_of
from clustertwin.telemetry.diagnosis.running_threads import RunningThreads, running_threads
from clustertwin.telemetry.diagnosis.stack_tools import native_stack, stack_of

#: Threads of a job that are looked at, beside the first one of each process.
MOST_THREADS = 8192
MOST_BESIDE_THREADS = 64  # of each process beside a rank
#: For the clocks of CPUs: on a busy CPU this thread waits for its turn.
CLOCKS_S = 0.5
SPENT = "the budget for stacks was spent"


@dataclass(frozen=True, slots=True)
class Budget:
    """What taking evidence may cost."""

    cpu_s: float = 0.8  # after this, no more stacks are taken
    window_s: float = 2.0  # between the looks; the helper sleeps


@dataclass(slots=True)
class _Half:
    """One end of the window."""

    looks: dict[int, ProcessLook | None] = field(default_factory=dict)
    stacks: dict[int, Stack] = field(default_factory=dict)
    stopped_s: dict[int, float] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    memory: dict[int, int | None] = field(default_factory=dict)
    running: dict[int, RunningThreads] = field(default_factory=dict)
    beside: dict[int, tuple[float, int, bool]] = field(default_factory=dict)
    shared: int | None = None
    traffic: dict[int, int] | None = None
    cgroup: dict[str, int] = field(default_factory=dict)


class _Clocks:
    """The clocks of the CPUs' schedulers as Unix time. To read one, this thread must run on its CPU."""

    def __init__(self) -> None:
        self._begun_s: dict[int, float | None] = {}  # CPU -> the Unix time at which its clock would be 0
        self._left_s = CLOCKS_S

    def ran_s(self, seen: ProcessLook) -> float | None:
        """When a process ran last."""
        if seen.ran_s is None:
            return None
        if seen.cpu not in self._begun_s and self._left_s > 0:
            begin_s = time.monotonic()
            now_s = scheduler_clock_s(seen.cpu)
            self._begun_s[seen.cpu] = None if now_s is None else time.time() - now_s
            self._left_s -= time.monotonic() - begin_s
        begun_s = self._begun_s.get(seen.cpu)
        return None if begun_s is None else min(begun_s + seen.ran_s, time.time())


def take(
    job: str,
    processes: JobProcesses,
    node: str,
    budget: Budget = Budget(),
    sleep: Callable[[float], None] = time.sleep,
    begin_cpu_s: float | None = None,
) -> JobEvidence:
    """The evidence of the processes of a job on this node.

    `begin_cpu_s` is the CPU time (`used_cpu_s`) before its processes were looked for, which costs as well.
    """
    begin_s, begin_cpu_s = time.time(), used_cpu_s() if begin_cpu_s is None else begin_cpu_s

    def left_s() -> float:
        return budget.cpu_s - (used_cpu_s() - begin_cpu_s)

    ranks = processes.ranks[:MOST_PROCESSES]
    mappings = memory_signatures.shared_mappings([process.pid for process in ranks])
    half_s = left_s() / 2
    looked_s, begin = time.monotonic(), job_activity.moment(processes)
    first = _half(ranks, mappings, lambda: left_s() - half_s)
    sleep(budget.window_s)
    window_s, end = time.monotonic() - looked_s, job_activity.moment(processes)  # on a busy node stacks take time, too
    last = _half(ranks, mappings, left_s)
    _look_at_threads(ranks, first, last)
    clocks = _Clocks()
    whole = job_activity.activity(begin, end, unread=processes.refused + processes.left_out)
    return JobEvidence(
        job=job,
        nodes=(node,),
        taken_s=begin_s,
        window_s=round(window_s, 1),
        processes=tuple(_process(node, process, first, last, clocks) for process in ranks),
        size=processes.size,
        wanted_nodes=processes.nodes,
        messages_pass=_messages_pass(first, last, processes.nodes > 1),
        refused=processes.refused,
        left_out=processes.left_out + len(processes.ranks) - len(ranks),
        cpu_s=used_cpu_s() - begin_cpu_s,
        cgroup=whole | {name: last.cgroup[name] - old for name, old in first.cgroup.items() if name in last.cgroup},
    )


def _half(
    ranks: tuple[RankProcess, ...],
    mappings: list[memory_signatures.SharedMapping],
    left_s: Callable[[], float],
) -> _Half:
    """One look at every process. `left_s` is the CPU time that the budget still allows."""
    half = _Half()
    for process in ranks:
        seen = look(process.pid)
        half.looks[process.pid] = _with_freezer(seen) if seen and is_same(process, seen) else None
        if process.beside:
            others = [other for pid in process.beside if (other := look(pid))]
            half.beside[process.pid] = (
                sum(other.cpu_s + other.other_cpu_s for other in others),
                sum(other.io_bytes for other in others),
                any(
                    other.state == "R" or other_thread_can_run(other.pid, MOST_BESIDE_THREADS) is not False
                    for other in others
                ),
            )
    half.shared = memory_signatures.shared_signature(mappings) if mappings else None
    half.traffic = network_traffic.traffic(process.pid for process in ranks if half.looks[process.pid])
    half.cgroup = job_cgroup.counters(ranks[0].pid) if ranks else {}
    # Those that the kernel shows as blocked tell the most. They come first if the budget is short.
    order = sorted(ranks, key=lambda process: _is_running(half.looks[process.pid]))
    for process in order:
        seen = half.looks[process.pid]
        if seen is None:
            continue
        if (cpu_s := left_s()) <= 0:
            half.notes[process.pid] = SPENT
            continue
        # An attach to a frozen process would wait for it, too.
        stack, stopped_s, note = stack_of(process.pid, "T" if seen.is_frozen else seen.state, cpu_s)
        if not is_same(process, look(process.pid)):
            half.notes[process.pid] = "it ended meanwhile"  # and the stack may be that of another user's process
            continue
        half.stacks[process.pid], half.stopped_s[process.pid] = stack, stopped_s
        half.notes[process.pid] = note
        if not mpi_call(stack) and (running := running_threads(process.pid)):
            half.running[process.pid] = running
            half.stopped_s[process.pid] += running.stopped_s
            half.memory[process.pid] = memory_signatures.private_signature(process.pid, running)
    return half


def _with_freezer(seen: ProcessLook) -> ProcessLook:
    return replace(seen, is_frozen=job_cgroup.is_frozen(seen.pid))


def _look_at_threads(ranks: tuple[RankProcess, ...], first: _Half, last: _Half) -> None:
    """Whether other threads can run that used hardly any CPU time: the first one may wait for them."""
    left = MOST_THREADS
    for process in ranks:
        before, after = first.looks[process.pid], last.looks[process.pid]
        if before is None or after is None or after.threads < 2 or after.other_cpu_s - before.other_cpu_s > WORK_S:
            continue
        last.looks[process.pid] = replace(after, other_can_run=other_thread_can_run(process.pid, left))
        left = max(left - after.threads, 0)


def _messages_pass(first: _Half, last: _Half, several_nodes: bool) -> bool | None:
    """Whether shared memory or the bytes of a TCP socket changed; None if there is neither that would tell.

    Inside a node, messages pass through shared memory, and between nodes they do not.
    """
    shared = None if None in (first.shared, last.shared) else first.shared != last.shared
    network = None if first.traffic is None or last.traffic is None else first.traffic != last.traffic
    if shared or network:
        return True
    return network if several_nodes else shared


def _process(node: str, process: RankProcess, first: _Half, last: _Half, clocks: _Clocks) -> ProcessEvidence:
    pid = process.pid
    before, after = first.looks[pid], last.looks[pid]
    stacks = tuple(half.stacks[pid] for half in (first, last) if pid in half.stacks)
    memory = tuple(half.memory[pid] for half in (first, last) if pid in half.memory)
    running = tuple(half.running[pid] for half in (first, last) if pid in half.running)
    beside = tuple(half.beside[pid] for half in (first, last) if pid in half.beside)
    unread = SPENT in (first.notes.get(pid), last.notes.get(pid))
    does = state_of(TwoLooks(before, after, stacks, memory, running, unread, beside))
    # On a busy node a process may not stop in time at one of the looks. What the other one has read counts.
    stack = next((seen for seen in reversed(stacks) if seen.native), stacks[-1] if stacks else Stack())
    if does == "spins" and pid not in last.running[pid].cpu_s:
        # The first thread sleeps. Where it does says nothing of the loop.
        stack = Stack(native_stack(pid, thread=max(last.running[pid].cpu_s)).frames)
    blocked = does in ("stopped", "blocked", "sleeps")
    return ProcessEvidence(
        node=node,
        pid=pid,
        rank=process.rank,
        does=does,
        state=("R" if after.other_can_run and does != "stopped" else after.state) if after else "",
        wchan=after.wchan if after else "",
        waiting=after.waiting if after else None,
        mpi_call=mpi_call(stack),
        stack=stack,
        kernel_stack=after.kernel_stack if after else (),
        since_s=clocks.ran_s(after) if blocked and after else None,
        cpu_s=round(after.cpu_s - before.cpu_s, 3) if before and after else 0.0,
        faults=after.faults - before.faults if before and after else 0,
        io_bytes=after.io_bytes - before.io_bytes if before and after else 0,
        stopped_ms=round(1000 * (first.stopped_s.get(pid, 0.0) + last.stopped_s.get(pid, 0.0)), 1),
        note=last.notes.get(pid, "") or first.notes.get(pid, ""),
    )


def _is_running(seen: ProcessLook | None) -> bool:
    return seen is not None and seen.state == "R"


def used_cpu_s() -> float:
    """CPU time of this process and of the tools that it has started."""
    own, tools = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + tools.ru_utime + tools.ru_stime


def node_name() -> str:
    return os.uname().nodename
