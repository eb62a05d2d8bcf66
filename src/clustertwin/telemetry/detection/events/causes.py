"""The table of causes: a name -> what it is called in a title, what to do next, and what the job's owner can change.

`UNUSUAL` is the cause of an event that no row describes: its title names a channel, a direction and a comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Question = Literal["harm", "change", "new", ""]

UNUSUAL = "unusual"
IDLE, HUNG_RANK, MISBOUND = "idle", "hung-rank", "misbound"
STRAGGLER, STALLED_IO = "straggler", "stalled-io"


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the table. In `advice`, {job} is the job's id, {threads} its busy threads and {busy} "2 of 8"."""

    phrase: str  # what the job does, in a title
    next_step: str  # for the operator
    advice: tuple[str, ...]  # for the job's owner, with the Slurm directive; at most 78 columns each
    question: Question = "harm"
    node_channel: str = ""  # the channel of a node that shows that all of its jobs have the same problem
    faults: tuple[str, ...] = ()  # known faults of the embedding that look like this


CAUSES: dict[str, Cause] = {
    IDLE: Cause(
        "looks hung",
        "Look at the job's output and at a stack of one process; cancel the job if it makes no progress.",
        ("The job looks hung: all of its threads are idle.", "  scancel {job}   after a look at its output"),
        faults=("hung-job",),
    ),
    HUNG_RANK: Cause(
        "has idle threads while the others are busy",
        "Look at a stack of the idle rank and of one that waits; a collective call may never return.",
        (
            "Some threads went idle while the others wait for them. Look at the idle rank:",
            "  srun --jobid={job} --overlap gdb -p PID   or py-spy dump",
        ),
        faults=("hung-rank",),
    ),
    MISBOUND: Cause(
        "looks misbound",
        "Look at the affinity of the job's processes (taskset -pc PID); several of them may share a CPU.",
        (
            "The work is on {busy} threads. Further processes would share them:",
            "  srun --cpu-bind=cores   or   #SBATCH --hint=nomultithread",
            "  #SBATCH --ntasks-per-core=1   one process for each core",
            "  #SBATCH --cpus-per-task={threads}   only if the program has no more threads",
        ),
        faults=("misbound",),
    ),
    STRAGGLER: Cause(
        "has a straggler",
        "Look at the slow rank's node and data: another process on its CPU, a slow clock, or uneven work.",
        (
            "One thread works while the others wait for it. Balance the work of the ranks,",
            "  or ask for whole cores: #SBATCH --cpu-bind=cores --exclusive",
        ),
        faults=("straggler-x2", "straggler-x1.5"),
    ),
    STALLED_IO: Cause(
        "waits for I/O",
        "Look at the file system that the job uses and at other jobs that use it.",
        (
            "The job waits for the disk. Write larger blocks, or to the node's local disk:",
            "  #SBATCH --tmp=10G   and write to $TMPDIR",
        ),
        node_channel="io_pressure",
        faults=("bad-io", "slow-io"),
    ),
    "cpu-contention": Cause(
        "competes for its CPUs",
        "Look for other processes on the job's CPUs; without cgroups, also for more threads than CPUs in the job.",
        ("Other work runs on the job's CPUs. If nodes are shared, ask for whole ones:", "  #SBATCH --exclusive"),
        node_channel="cpu_pressure",
        faults=("noisy-neighbour",),
    ),
    "throttled": Cause(
        "is throttled",
        "Look at the CPU quota of the job's cgroup and of the groups above it (cpu.max, in v1 cpu.cfs_quota_us).",
        ("The job's CPU quota stops its threads:", "  #SBATCH --cpus-per-task   as many as the job has threads"),
        faults=("throttled",),
    ),
    "memory-pressure": Cause(
        "waits for memory",
        "Look at the memory of the node and of its jobs.",
        ("The job waits for memory:", "  #SBATCH --mem   a larger limit, or fewer tasks on each node"),
        node_channel="memory_pressure",
        faults=("swap-bursts",),
    ),
    "swapping": Cause(
        "swaps",
        "Look at the memory of the node and of its jobs; a job uses more than it asked for.",
        ("The job swaps:", "  #SBATCH --mem   a larger limit, or fewer tasks on each node"),
        node_channel="memory_pressure",
        faults=("swap-bursts",),
    ),
    "out-of-memory": Cause(
        "lost a process for lack of memory",
        "Look at the kernel's log of the node and at the memory limit of the job.",
        ("The kernel killed a process of the job for lack of memory:", "  #SBATCH --mem   a larger limit"),
        node_channel="memory_pressure",
    ),
    "steal": Cause(
        "loses CPU time to the hypervisor",
        "Look at the other guests of the node's host.",
        ("The node's host gives its CPUs to other guests. The job cannot change that.",),
        node_channel="steal",
    ),
    "leak": Cause(
        "uses more and more memory",
        "Warn the owner: the job ends when it reaches its memory limit.",
        ("The job's memory grows without end. It will reach its limit; look for a leak.",),
        faults=("memory-leak",),
    ),
    "kernel-time": Cause(
        "spends more time in the kernel",
        "Look at the system calls of one process (perf top, strace -c): paging, small reads and locks are common.",
        ("The job spends much more time in the kernel than before. Look at one process:",
         "  srun --jobid={job} --overlap strace -c -p PID"),
        question="change",
        faults=("swap-bursts", "noisy-neighbour"),
    ),
    "stall-bursts": Cause(
        "stalls in bursts",
        "Look at the swap traffic of the node, at the file system that the job uses and at the kernel's log.",
        ("The job loses time in the kernel or in I/O, in bursts. Look at its memory:",
         "  #SBATCH --mem   a larger limit, if it swaps"),
        question="change",
        faults=("swap-bursts",),
    ),
    "one-thread-left": Cause(
        "works on one thread only",
        "Look at a stack of an idle process: a serial phase is normal, a collective call that never returns is not.",
        ("All threads of the job but one are idle. Look at an idle process:",
         "  srun --jobid={job} --overlap gdb -p PID   or py-spy dump"),
        question="change",
        faults=("hung-rank",),
    ),
    "spinning": Cause(
        "keeps its CPUs busy and makes no progress",
        "Look at the evidence of the job's processes; cancel the job if its output does not grow.",
        ("The job uses CPU time and makes no progress. Look at one process:",
         "  srun --jobid={job} --overlap gdb -p PID   or py-spy dump",
         "  scancel {job}   after a look at its output"),
        question="change",
        faults=("hung-job",),
    ),
    "maybe-spinning": Cause(
        "may be busy without progress",
        "Compare with the job's output: a solver that reuses its memory looks the same.",
        ("The job is busy and touches no new memory. Look at its output.",),
        question="change",
    ),
    "oversubscribed": Cause(
        "runs more tasks than it has threads",
        "Compare the processes and threads of the job with its CPUs; a phase with many short tasks is normal.",
        ("More tasks run than the job has CPUs:", "  export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK"),
        question="change",
    ),
    "unlike-itself": Cause(
        "is unlike itself",
        "Compare with the job's output at this time: a new phase of the program is normal.",
        ("The job behaves unlike before. Look at its output at this time.",),
        question="change",
    ),
    "unlike-program": Cause(
        "is unlike other runs of its program",
        "Compare input, version and node with those of earlier runs.",
        ("The job is unlike earlier runs of its program. Compare input and version.",),
        question="change",
    ),
    "new-program": Cause("is a new kind of work", "Nothing to do.", (), question="new"),
    UNUSUAL: Cause(
        "is unusual",
        "Look at the threads second by second, and give a verdict.",
        ("Its threads are unlike those of other jobs here. Look at the job's output.",),
        question="change",
        faults=("throttled", "noisy-neighbour", "swap-bursts", "memory-leak", "straggler-x2", "straggler-x1.5"),
    ),
}  # fmt: skip


def cause_of(name: str) -> Cause:
    """The row of a cause. A cause that a newer release stored, or none, is treated as unusual."""
    return CAUSES.get(name, CAUSES[UNUSUAL])
