"""Evidence of jobs that may stand still: suspicions of the loop -> the jobs that two looks show to hang.

A suspicion opens no event, so a look at such a job is rare: one job in a turn, a few in a minute, and each job again
only after minutes. A first look that claims a hang is repeated half a minute later. Only a second look that claims the
same tells the loop, which opens the event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clustertwin.telemetry.detection.events.causes import HUNG_RANK, IDLE
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, JobFinding

#: Between two looks at a suspect that works: doubled after each, up to the longest.
EVERY_S, LONGEST_S = 600.0, 4800.0
#: Between two looks of which the first claims a hang; a second one that comes later than this is a first one again.
AGAIN_S, TOO_LATE_S = 30.0, 600.0
#: Looks at all suspects within a minute.
MOST_A_MINUTE = 2


@dataclass(frozen=True, slots=True)
class _Look:
    """The last look at a job, and what it claimed."""

    at_s: float
    wait_s: float  # until the next one
    claim: tuple[str, tuple[int, ...]] | None = None  # kind and ranks of a claimed hang, …
    claimed_s: float = 0.0  # … and when it was claimed first
    evidence: tuple[JobEvidence, ...] = ()  # of the looks that claim it


class SuspectLooks:
    """The looks at suspects so far. `hanging_s` is replaced as a whole: the loop reads it from another thread."""

    def __init__(self) -> None:
        self.hanging_s: Mapping[str, float] = {}  # job -> when a second look claimed the same hang
        self._looks: dict[str, _Look] = {}
        self._recent_s: deque[float] = deque()

    def due(self, suspects: Sequence[Finding], open_events: Sequence[Event], now_s: float) -> Finding | None:
        """The suspect to look at now, if any: one whose look is to be repeated first, then the longest suspected.

        The jobs of open events that say so already are looked at anyway. An event about another cause, such as other
        work on its CPUs, does not exclude that the job hangs. One that evidence opened before a restart needs evidence
        again.
        """
        since_s = {finding.job: finding.since_s for finding in suspects}
        self.hanging_s = {job: at_s for job, at_s in self.hanging_s.items() if since_s.get(job, at_s + 1) <= at_s}
        # A look from the future is from before the clock was set back.
        self._looks = {job: look for job, look in self._looks.items() if 0 <= now_s - look.at_s <= LONGEST_S}
        while self._recent_s and not 0 <= now_s - self._recent_s[0] < 60:
            self._recent_s.popleft()
        if len(self._recent_s) >= MOST_A_MINUTE:
            return None
        stand_still = {job for event in open_events if event.cause in (IDLE, HUNG_RANK) for job in event.jobs}
        known = stand_still | self.hanging_s.keys()
        waiting = [finding for finding in suspects if finding.job not in known and self._is_due(finding.job, now_s)]
        return min(waiting, key=lambda finding: (not self._claimed(finding.job), finding.since_s), default=None)

    def begin(self, job: str, now_s: float) -> None:
        """Count a look before it is taken, so that one which fails is not tried again at once."""
        self._recent_s.append(now_s)
        before = self._looks.get(job, _Look(now_s, EVERY_S / 2))
        wait_s = EVERY_S if before.claim else min(2 * before.wait_s, LONGEST_S)
        self._looks[job] = replace(before, at_s=now_s, wait_s=wait_s)

    def judge(self, job: str, evidence: JobEvidence, finding: JobFinding, now_s: float) -> None:
        """Remember what the look that was begun claims."""
        begun = self._looks[job]
        if not finding.hang:
            self._looks[job] = _Look(now_s, begun.wait_s)
            return
        claim = finding.kind, finding.ranks
        if begun.claim == claim and now_s - begun.claimed_s <= TOO_LATE_S:
            self.hanging_s = {**self.hanging_s, job: now_s}
            self._looks[job] = replace(begun, at_s=now_s, evidence=(*begun.evidence[:1], evidence))
        else:
            self._looks[job] = _Look(now_s, AGAIN_S, claim, now_s, (evidence,))

    def evidence_of(self, job: str) -> tuple[JobEvidence, ...]:
        """The evidence that confirmed a suspicion, the oldest first; empty if it is not confirmed."""
        look = self._looks.get(job)
        return look.evidence if look is not None and job in self.hanging_s else ()

    def _is_due(self, job: str, now_s: float) -> bool:
        look = self._looks.get(job)
        return look is None or now_s - look.at_s >= look.wait_s

    def _claimed(self, job: str) -> bool:
        look = self._looks.get(job)
        return look is not None and look.claim is not None
