"""The duel: what every contestant achieved -> who serves tomorrow, and why.

The smallest error on normal data wins, among those that keep what the golden set demands: a better reconstruction
that goes blind must not win. Pure: no model, no file, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustertwin.telemetry.continual.golden import Detection


@dataclass(frozen=True, slots=True)
class Rule:
    gate: bool = True  # False: error alone decides, as the reference system has it
    tolerance: float = 0.01  # of the mean recall over all kinds
    kind_tolerance: float = 0.10  # of the recall of any one kind, which rests on few windows
    most_false_alarms: float = 10.0  # times the stated rate, on held-out normal windows


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str  # champion, or architecture/start
    error: float  # mean squared, on held-out normal windows
    false_alarms: float  # the part of them that alarms
    detection: Detection
    stated_rate: float = 1e-3


@dataclass(frozen=True, slots=True)
class Choice:
    winner: str
    because: str
    refused: dict[str, str]  # who was better and may not win, and why


def choose(champion: Contestant, challengers: Sequence[Contestant], rule: Rule = Rule(), floor: float = 0.0) -> Choice:
    """The winner's name. `floor` is the best mean recall any champion had, so that many nights cannot wear it down."""
    refused = {}
    for one in sorted(challengers, key=lambda c: (c.error, c.name)):
        if not one.error < champion.error:
            break
        if rule.gate and (reason := blind(one, champion, rule, floor)):
            refused[one.name] = reason
            continue
        gain = 100 * (1 - one.error / champion.error)
        return Choice(one.name, f"error {one.error:.5f}, {gain:.1f} % below the champion's", refused)
    because = "no challenger has a smaller error" if not refused else "those with a smaller error see less"
    return Choice(champion.name, because, refused)


def blind(one: Contestant, champion: Contestant, rule: Rule, floor: float = 0.0) -> str:
    """Why a contestant may not win; empty: it may."""
    needed = max(champion.detection.mean, floor) - rule.tolerance
    if one.detection.mean < needed:
        return f"sees {one.detection.mean:.3f} of the golden set, {needed:.3f} are needed"
    for kind, before in champion.detection.recall.items():
        now = one.detection.recall.get(kind, 0.0)
        if now < before - rule.kind_tolerance:
            return f"sees {now:.3f} of {kind}, the champion {before:.3f}"
    most = rule.most_false_alarms * one.stated_rate
    if one.false_alarms > max(most, champion.false_alarms):
        return f"alarms on {one.false_alarms:.4f} of normal windows, {most:.4f} are allowed"
    return ""
