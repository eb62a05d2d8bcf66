"""The settings of the duel: what a false event costs, and which differences count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DuelRule:
    gate: bool = True  # False: the reconstruction error alone decides, as in the reference system
    false_event_cost: float = 0.05  # the part of all faults that is worth as much as one false event per node and day
    tolerance: float = 0.02  # a smaller difference of worth is none: the shorter description wins
    worn: float = 0.05  # the most that may be lost against an earlier champion, on the same night
