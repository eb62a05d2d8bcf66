"""Reviewers in a simulated month: a day's events and what was really wrong -> verdicts, some late and some mistaken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.telemetry.learning.night.verdicts import Verdict, VettedSpan
from clustertwin.telemetry.studies.month.simulated_watch import WatchedDay


@dataclass(frozen=True, slots=True)
class Reviewers:
    overlooked: float = 0.1  # part of the true events that they dismiss
    mistaken: float = 0.01  # part of the false events that they confirm
    expect_days: int = 5  # after a change they mark false events as new normal for this long; later they dismiss them
    late: float = 0.3  # part of the verdicts that arrive one or two days after the night
    resume_days: int = 1  # until somebody resumes after a halt
    repair_days: int = 2  # from a confirmed disk failure to the replacement


@dataclass(frozen=True, slots=True)
class DelayedVerdict:
    known: int  # the day from whose night on the verdict is known
    span: VettedSpan
    repaired: int | None = None  # the day on which it leads to a new disk


def vet_day(
    reviewers: Reviewers, day: int, watched: WatchedDay, last_change: int, rng: np.random.Generator
) -> list[DelayedVerdict]:
    """The verdicts on the day's events. `last_change` is the day of the last change that the reviewers know of."""
    verdicts = []
    harmless: Verdict = "new-normal" if day < last_change + reviewers.expect_days else "dismissed"
    for event in sorted(watched.events, key=lambda event: event.id):
        luck, delay = rng.random(), int(rng.integers(1, 3)) if rng.random() < reviewers.late else 0
        true = event.id in watched.true
        confirmed = luck >= reviewers.overlooked if true else luck < reviewers.mistaken
        verdict = "confirmed" if confirmed else "dismissed" if true else harmless
        about_disk = confirmed and event.id in watched.disk
        repaired = day + delay + reviewers.repair_days if about_disk else None
        end_s = event.end_s or event.seen_s
        verdicts += [
            DelayedVerdict(day + delay, VettedSpan(node, cpus, event.onset_s, end_s, verdict), repaired)
            for node, cpus in event.places
        ]
    return verdicts
