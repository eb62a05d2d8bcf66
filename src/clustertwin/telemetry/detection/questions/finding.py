"""A finding: the answer to one of three questions about a job on a node, with the number that shows it.

harm    lost time, no progress, waste; measured by absolute limits, so it holds for programs that nobody has seen
change  unlike the job's own past, its other threads, or earlier runs of the same program or user
new     never seen here; it is listed and learnt, and it opens no event
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Question = Literal["harm", "change", "new"]
Comparison = Literal["limit", "own past", "ranks", "program", "user", "site"]


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the table of causes."""

    label: str  # for people, in the middle of a sentence
    opens_event: bool = True  # False: shown as information
    hold_s: int = 90  # an event opens once the finding has held for this long: most phases of healthy work are shorter


#: Every cause that a finding can have.
CAUSES: dict[str, Cause] = {
    "idle": Cause("the job stopped working"),
    "stalled-io": Cause("the job waits for I/O and transfers next to nothing"),
    "cpu-contention": Cause("other work takes CPU time from the job"),
    "throttled": Cause("the kernel throttles the job", hold_s=60),
    "steal": Cause("the hypervisor takes CPU time from the node", hold_s=60),
    "memory-pressure": Cause("tasks wait for memory", hold_s=60),
    "swapping": Cause("the node swaps", hold_s=60),
    "out-of-memory": Cause("the kernel killed a task of the job for lack of memory", hold_s=0),
    "leak": Cause("memory grows steadily", hold_s=60),
    "kernel-time": Cause("much more time than usual is spent in the kernel"),
    "straggler": Cause("a thread works differently from the others of its job"),
    "odd-rank": Cause("a thread was left behind by the others of its job"),
    "one-thread-left": Cause("all threads of the job but one stopped working", hold_s=240),
    "spinning": Cause("the job only spins: it computes, and neither transfers nor waits any more"),
    "misbound": Cause("all tasks of the job share one of its threads"),
    "unlike-program": Cause("the job differs from earlier runs of its program"),
    "unlike-itself": Cause("the job entered a phase that it did not have before", opens_event=False),
    "oversubscribed": Cause("the job runs more tasks than it has threads", opens_event=False),
    "new-program": Cause("a new kind of work", opens_event=False),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one job on one node at one moment."""

    question: Question
    cause: str  # a row of CAUSES
    job: str  # empty: threads without a job
    node: str  # empty: the whole job
    cpus: tuple[int, ...]
    channel: str  # the channel that shows it
    value: float  # its mean now
    usual: float  # what it is compared with; NaN: nothing
    compared_with: Comparison
    since_s: int
    strength: float  # on the scale of scores: above the detector's threshold it counts as an alarm

    @property
    def opens_event(self) -> bool:
        """Whether it may open an event, once it has held long enough."""
        return self.question != "new" and CAUSES[self.cause].opens_event

    def held(self, now_s: int) -> bool:
        """Whether it has held long enough."""
        return now_s - self.since_s >= CAUSES[self.cause].hold_s
