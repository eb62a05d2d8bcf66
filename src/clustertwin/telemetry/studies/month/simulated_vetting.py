"""People in a simulated month: a day's events and what was truly wrong -> verdicts, some late and some mistaken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.telemetry.learning.night.verdicts import Verdict, Vetted
from clustertwin.telemetry.studies.month.simulated_watch import Watched


@dataclass(frozen=True, slots=True)
class People:
    """How verdicts come about."""

    overlooked: float = 0.1  # of true events are dismissed
    mistaken: float = 0.01  # of false events are confirmed
    expect_days: int = 5  # after a change: so long a false event is called the new normal, later it is dismissed
    late: float = 0.3  # of verdicts arrive a day or two after the night
    resume_days: int = 1  # until somebody lifts a halt
    repair_days: int = 2  # until a failing disk is replaced, once somebody confirmed it


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict, from which day's night on it is known, and the day on which it gets a disk replaced."""

    known: int
    vetted: Vetted
    repaired: int | None = None


def vet(people: People, day: int, watched: Watched, changed: int, rng: np.random.Generator) -> list[Said]:
    """What people say of the day's events; `changed` is the day of the last change that they know of."""
    said = []
    harmless: Verdict = "new-normal" if day < changed + people.expect_days else "dismissed"
    for event in sorted(watched.events, key=lambda event: event.id):
        luck, delay = rng.random(), int(rng.integers(1, 3)) if rng.random() < people.late else 0
        true = event.id in watched.true
        confirmed = luck >= people.overlooked if true else luck < people.mistaken
        verdict = "confirmed" if confirmed else "dismissed" if true else harmless
        failing = confirmed and event.id in watched.disk
        repaired = day + delay + people.repair_days if failing else None
        end_s = event.end_s or event.seen_s
        said += [
            Said(day + delay, Vetted(node, cpus, event.onset_s, end_s, verdict), repaired)
            for node, cpus in event.places
        ]
    return said
