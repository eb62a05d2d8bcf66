"""People in a simulated month: a day's events and what was truly wrong -> verdicts, some late and some mistaken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clustertwin.core.traces import Trace
from clustertwin.telemetry.continual.verdicts import Verdict, Vetted
from clustertwin.telemetry.continual.world import World
from clustertwin.telemetry.detection.events import Event

_EARLY_S = 150  # an event's onset is the end of a window; what was wrong may have ended within it


@dataclass(frozen=True, slots=True)
class People:
    """How verdicts come about."""

    overlooked: float = 0.1  # of true events are dismissed
    mistaken: float = 0.01  # of false events are confirmed
    late: float = 0.3  # of verdicts arrive a day or two after the night
    resume_days: int = 1  # until somebody lifts a halt
    repair_days: int = 2  # until a failing disk is replaced, once somebody confirmed it


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict, from which day's night on it is known, and the day on which it gets a disk replaced."""

    known: int
    vetted: Vetted
    repaired: int | None = None


def truly(world: World, day: int, traces: Sequence[Trace], event: Event) -> bool:
    """Was anything wrong with a thread of this event while it lasted?"""
    if world.creep(day) > 0 and world.creeping_node in event.nodes:
        return True
    places = dict(event.places)
    end_s = event.end_s or event.seen_s
    return any(
        span.anomaly and span.start_s < end_s and span.end_s > event.onset_s - _EARLY_S
        for trace in traces
        for span in trace.spans
        if set(span.cpus) & set(places.get(span.node, ()))
    )


def vet(
    world: World, people: People, day: int, traces: Sequence[Trace], events: Sequence[Event], rng: np.random.Generator
) -> list[Said]:
    """What people say of the day's events."""
    said = []
    for event in sorted(events, key=lambda event: event.id):
        luck, delay = rng.random(), int(rng.integers(1, 3)) if rng.random() < people.late else 0
        confirmed = luck >= people.overlooked if truly(world, day, traces, event) else luck < people.mistaken
        failing = confirmed and world.creep(day) > 0 and world.creeping_node in event.nodes
        verdict: Verdict = "confirmed" if confirmed else "dismissed"
        repaired = day + delay + people.repair_days if failing else None
        end_s = event.end_s or event.seen_s
        said += [
            Said(day + delay, Vetted(node, cpus, event.onset_s, end_s, verdict), repaired)
            for node, cpus in event.places
        ]
    return said
