"""A finding: the answer to one of three questions about a job on a node, with the number that shows it.

harm    lost time, no progress, waste; measured by absolute limits, so it holds for programs that nobody has seen
change  unlike the job's own past, its other threads, or earlier runs of the same program or user
new     never seen here; it is listed and learnt, and it opens no event
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MAX_STRENGTH = 30.0  # as of scores
CLEAR = 1.5  # a finding is clear if it is this many times beyond its limit
EXPLAINS_S = 30  # a finding that has held for this long explains a symptom

#: A busy job without a sign of progress: as a suspicion, and once evidence of its processes shows that it hangs.
SUSPECTED, CONFIRMED = "maybe-spinning", "spinning"

Question = Literal["harm", "change", "new"]
Comparison = Literal["limit", "own past", "ranks", "program", "user", "site"]


@dataclass(frozen=True, slots=True)
class Persistence:
    """Whether a finding opens an event, and after how long."""

    opens_event: bool = True  # False: shown as information
    hold_s: int = 90  # an event opens once the finding has held for this long: most phases of healthy work are shorter
    hold_known_s: int = 0  # the same against earlier runs of the program, whose phases are known; 0: no difference
    hold_of_two_s: int = 0  # the same for a job of two threads on its node
    from_outside: bool = False  # no phase of healthy work looks like it: a clear finding opens in half of the time
    symptom: bool = False  # only a mean of the job changed: a finding that says why names the event


#: Every cause that a finding can have. `events/causes.py` has their texts.
FINDING_CAUSES: dict[str, Persistence] = {
    "idle": Persistence(),  # the job stopped working
    "stalled-io": Persistence(),  # it waits for I/O and transfers next to nothing
    "cpu-contention": Persistence(hold_s=150, hold_known_s=90, from_outside=True),  # other work; cron is shorter
    "throttled": Persistence(hold_s=60, from_outside=True),
    "steal": Persistence(hold_s=60, from_outside=True),  # the hypervisor takes CPU time from the node
    "memory-pressure": Persistence(hold_s=60),
    "swapping": Persistence(hold_s=60),
    "out-of-memory": Persistence(hold_s=0),  # the kernel killed a task of the job
    "leak": Persistence(hold_s=60),  # memory grows steadily
    "kernel-time": Persistence(symptom=True),  # much more time than usual in the kernel
    "stall-bursts": Persistence(hold_s=180, symptom=True),  # such time in bursts; one raises the mean for 2 min
    "straggler": Persistence(),  # a thread works differently from the others of its job
    "hung-rank": Persistence(),  # a thread stopped while the others go on
    # All threads but one stopped. A serial phase looks the same; few last longer. Of two threads, one rank may hang.
    "one-thread-left": Persistence(hold_s=600, hold_of_two_s=240),
    "misbound": Persistence(hold_s=60),  # tasks wait for a CPU while another one of the job is free
    "unlike-program": Persistence(symptom=True),  # more idle time than in any earlier run of the program
    "unlike-itself": Persistence(opens_event=False),  # a phase that the job did not have before
    "oversubscribed": Persistence(opens_event=False),  # the job itself runs more tasks than it has threads
    SUSPECTED: Persistence(opens_event=False),  # busy, and without the page faults and the traffic that it had
    CONFIRMED: Persistence(hold_s=0),  # the same, and evidence of its processes shows that it hangs
    "new-program": Persistence(opens_event=False),
}
#: Memory fails independently of progress, so a job can have an event of each kind.
MEMORY_CAUSES = frozenset({"memory-pressure", "swapping", "out-of-memory", "leak"})


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one job on one node at one moment."""

    question: Question
    cause: str  # a row of FINDING_CAUSES
    job: str  # empty: threads without a job
    node: str
    cpus: tuple[int, ...]
    channel: str  # the channel that shows it
    value: float  # its mean now
    usual: float  # what it is compared with; NaN: nothing
    compared_with: Comparison
    since_s: int
    strength: float  # on the scale of scores: above the detector's threshold it counts as an alarm
    clear_s: int = 0  # of the seconds since then: those in which it was clear

    @property
    def opens_event(self) -> bool:
        """Whether it may open an event, once it has held long enough. Other jobs of a user may run other programs."""
        return self.question != "new" and self.compared_with != "user" and FINDING_CAUSES[self.cause].opens_event

    def held(self, now_s: int) -> bool:
        """Whether it has held long enough. A clear second counts twice where the cause comes from outside."""
        needed = FINDING_CAUSES[self.cause]
        known = needed.hold_known_s * (self.compared_with == "program")
        hold_s = known or needed.hold_of_two_s * (len(self.cpus) <= 2) or needed.hold_s
        return now_s - self.since_s + needed.from_outside * self.clear_s >= hold_s


def naming_finding(findings: Sequence[Finding], now_s: int) -> Finding | None:
    """The finding that names the event of a job: of those that have held long enough, the one that holds longest.

    What evidence has confirmed comes first. If the longest is a symptom, a finding that explains it names the event.
    The symptom was seen for long enough, so the explanation need not be. None while none has held long enough.
    """
    if confirmed := [finding for finding in findings if finding.cause == CONFIRMED]:
        return confirmed[0]
    held = [finding for finding in findings if finding.held(now_s)]
    if not held:
        return None
    reasons = [finding for finding in findings if not FINDING_CAUSES[finding.cause].symptom]
    lasting = [finding for finding in reasons if finding in held]
    recent = [finding for finding in reasons if now_s - finding.since_s >= EXPLAINS_S]
    return min(lasting or recent or held, key=lambda finding: (finding.since_s, -finding.strength, finding.cause))


def names_better(cause: str, before: str) -> bool:
    """Whether a cause names an event better than the one before, although that one lasts: confirmed, or no symptom."""
    symptom = before in FINDING_CAUSES and FINDING_CAUSES[before].symptom
    return cause == CONFIRMED or (symptom and not FINDING_CAUSES[cause].symptom)
