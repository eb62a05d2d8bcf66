"""The golden set of a site: its own healthy days with faults imposed on them -> the faults that a detector sees.

A challenger must see faults in the programs of this site, not in those of another. Each case is one job at one moment,
as it was recorded and with a fault. A fault is seen if the job is above the bar of the event tracker with it and not
without it: a detector that alarms on the healthy job sees nothing there. The set is made from moments that no
challenger of the night was trained or calibrated on. It depends only on them and on the seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.duel.event_alarms import (
    ThreadGroup,
    above_bar,
    event_bar,
    largest_node,
    looks,
    scored,
    visibly_harmed,
)
from clustertwin.telemetry.learning.duel.golden_set import GoldenSetResult
from clustertwin.telemetry.learning.duel.imposed_faults import FAULTS, LEAK, cpu_columns, has_memory, impose
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment

CASES = 16  # of each kind
FEWEST_CASES = 8  # of all kinds: with fewer, the site has no golden set of its own yet
_MOST_THREADS = 32  # of a job; more do not change what is seen
_LEAST_VALID = 0.8  # part of a job's seconds


@dataclass(frozen=True, slots=True)
class ImposedCase:
    """A job with a fault."""

    kind: str
    job: int  # index into the healthy jobs of the set
    moment: Moment  # only the threads of the job


@dataclass(frozen=True, slots=True)
class SiteGoldenSet:
    healthy: tuple[Moment, ...]  # each with the threads of one job, as recorded
    cases: tuple[ImposedCase, ...]
    node_threads: int  # of the largest node of the site, which sets the bar of an event
    sha256: str

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted({case.kind for case in self.cases}))

    @property
    def enough(self) -> bool:
        return len(self.cases) >= FEWEST_CASES


def site_golden_set(moments: Sequence[Moment], seed: int = 0) -> SiteGoldenSet:
    """Impose each fault on up to `CASES` healthy jobs of these moments: as many different jobs as there are."""
    healthy = [job for moment in moments for job in _healthy_jobs(moment)]
    imposed = []
    for number, kind in enumerate((*FAULTS, LEAK)):
        rng = np.random.default_rng((seed, number))
        suitable = [i for i, job in enumerate(healthy) if _suits(kind, job)]
        for i in _different_jobs(healthy, suitable, CASES, rng):
            imposed.append(ImposedCase(kind, i, impose(kind, healthy[i], rng)))
    used = sorted({case.job for case in imposed})
    place = {old: new for new, old in enumerate(used)}
    renumbered = tuple(ImposedCase(case.kind, place[case.job], case.moment) for case in imposed)
    kept = tuple(healthy[i] for i in used)
    return SiteGoldenSet(kept, renumbered, largest_node(moments), _digest(kept, renumbered))


def evaluate_on_site(detector: Detector, golden: SiteGoldenSet) -> GoldenSetResult:
    """The part of the faults of each kind that would open an event, where the healthy job would not."""
    bar = event_bar(detector, golden.node_threads)

    def alarms(moments: Sequence[Moment]) -> list[bool | None]:
        return [
            above_bar(scores, ThreadGroup(np.arange(len(moment)), bool(moment.jobs)), bar)
            for moment, scores in scored(detector, moments)
        ]

    before, after = alarms(golden.healthy), alarms([case.moment for case in golden.cases])
    seen: dict[str, list[bool]] = {}
    for case, alarm in zip(golden.cases, after, strict=True):
        seen.setdefault(case.kind, []).append(bool(alarm) and not before[case.job])
    known = [alarm for alarm in before if alarm is not None]
    recall = {kind: float(np.mean(found)) for kind, found in sorted(seen.items())}
    return GoldenSetResult(recall, float(np.mean(known)) if known else 0.0, golden.sha256, paired=True)


def _healthy_jobs(moment: Moment) -> list[Moment]:
    """The settled jobs of a moment that show no harm, each as a moment of its own."""
    jobs = []
    for look in looks(moment):
        if bool(moment.jobs) and not look.has_job:
            continue  # threads without a job idle; a fault of theirs shows on the node
        rows = look.rows[:_MOST_THREADS]
        whole = moment.settled[rows].all() and moment.valid[rows].mean() >= _LEAST_VALID
        if whole and moment.valid[rows, -WINDOW_S:].mean(1).min() >= _LEAST_VALID and not visibly_harmed(moment, look):
            jobs.append(moment.take(rows))
    return jobs


def _suits(kind: str, job: Moment) -> bool:
    if kind == LEAK:
        return has_memory(job)
    fault = FAULTS[kind]
    if fault.needs_job and not job.jobs:
        return False
    ratios = job.values[..., cpu_columns(job.schema)][job.valid].mean(0)
    return len(job) >= fault.ranks and float(ratios[0] + ratios[1]) >= fault.least_busy


def _different_jobs(
    healthy: Sequence[Moment], suitable: Sequence[int], count: int, rng: np.random.Generator
) -> list[int]:
    """Up to `count` of these: one moment of each job first, then a second one."""
    by_job: dict[tuple[str, ...], list[int]] = {}
    for i in rng.permutation(np.asarray(suitable, np.intp)).tolist():
        moment = healthy[i]
        name = (moment.jobs[moment.job[0]],) if moment.jobs else (moment.nodes[moment.node[0]],)
        by_job.setdefault(name, []).append(i)
    rounds = [[of_job[n] for of_job in by_job.values() if n < len(of_job)] for n in range(len(suitable))]
    return [i for chosen in rounds for i in chosen][:count]


def _digest(healthy: Sequence[Moment], cases: Sequence[ImposedCase]) -> str:
    digest = hashlib.sha256()
    for moment in (*healthy, *(case.moment for case in cases)):
        digest.update(np.ascontiguousarray(moment.values).tobytes())
        digest.update(np.ascontiguousarray(moment.job).tobytes())
    digest.update("\n".join(case.kind for case in cases).encode())
    return digest.hexdigest()
