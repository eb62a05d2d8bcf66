"""The settings of the three questions: limits of harm, and the smallest effects that matter."""

from __future__ import annotations

from dataclasses import dataclass

from clustertwin.telemetry.detection.questions.job_parts import NO_TRAFFIC


@dataclass(frozen=True, slots=True)
class QuestionSettings:
    """Shares are of a thread's time or of a node's memory, as the channels are."""

    block_s: int = 30  # a signal is a mean over this many seconds
    start_s: int = 30  # the first seconds of a job are its start-up and are not compared
    least_blocks: int = 2  # blocks that a past needs
    most_blocks: int = 96  # blocks kept of a job; older ones are thinned out
    lag_blocks: int = 1  # the newest blocks may hold the beginning of a change, so they are not yet part of the past
    drift_blocks: int = 10  # the same once the past is twice as long, so that a slow drift does not become usual
    spreads: float = 4.0  # an effect is at least this many spreads of the job's own blocks
    recurring_after: int = 2  # a change that came and went this often is a phase of the job
    learn_runs: int = 3  # runs after which a program is no longer new, and its table is used
    learn_blocks: int = 6  # blocks that a run needs to be learnt from
    forget_s: int = 120  # a job that is not in the moments for this long has ended

    # the smallest effects that matter, against what is usual
    idle: float = 0.10  # threads of the job stop working, …
    slowed: float = 0.08  # … even the busiest one by this much
    unlike_program: float = 0.15  # idle time above that of every earlier run, whose inputs were others
    lost: float = 0.025  # contention: idle and waiting tasks together, …
    waiting: float = 0.010  # … of which the waiting tasks rise by this much
    iowait: float = 0.10
    kernel: float = 0.05
    bursts: float = 0.06  # system time and iowait together, over 100 s
    apart: float = 0.05  # a thread against the median of its job, …
    apart_ratio: float = 0.25  # … and this part of its usual distance
    others: float = 0.05  # other work on the job's threads
    queued: float = 0.35  # a task of the job waits for a CPU although no other work takes it; shown, never an event
    leak: float = 0.010  # of the memory of the job or of the node, in a minute, steadily
    loading: float = 0.10  # of traffic, 11 MB/s: enough to read 1 % of 64 GB in a minute
    least_progress: float = 0.02  # page faults or traffic are usual if every half minute had this much, …
    no_progress: float = 0.001  # … and less than this over 100 s is none, …
    still_busy: float = 0.80  # … while its threads together keep more than this many CPUs busy
    information: float = 0.20  # any other change of a channel, shown and never an event

    # limits that no healthy program exceeds for minutes, of means over 100 s
    most_throttled: float = 0.10
    most_steal: float = 0.10
    most_others: float = 0.15
    most_of_one: float = 0.35  # of one thread, while a task of the job waits for a CPU
    most_memory_pressure: float = 0.20
    most_swap: float = 0.20
    most_iowait: float = 0.25  # without traffic
    most_iowait_blind: float = 0.40  # where traffic is not known
    least_traffic: float = NO_TRAFFIC
    least_queued: float = 0.50  # a task of the job waits for a CPU this long, while another CPU of the job is free
    idle_above: float = 0.90  # a job is idle …
    busiest_below: float = 0.20  # … if not even its busiest thread works
