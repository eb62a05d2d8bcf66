"""The duel: what every contestant achieved -> who serves tomorrow, and why.

The smallest error on normal data wins, among those that keep what the golden set demands: a better reconstruction
that goes blind must not win. At the same error, which is that of the same weights, fewer false alarms win: where no
challenger reconstructs better, the champion still learns what has become usual. The golden set never changes, a cluster
does: where a person called part of the day the new normal, alarms on that day's windows are noise as well, and a
champion that floods has no sight to defend; what champions before it saw binds no longer. Pure: no model, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustertwin.telemetry.learning.duel.golden_set import Detection


@dataclass(frozen=True, slots=True)
class Rule:
    gate: bool = True  # False: error alone decides, as the reference system has it
    tolerance: float = 0.01  # of the mean recall over all kinds, in one night
    worn: float = 0.03  # … in many, against the best there was: no two calibrations measure quite the same
    kind_tolerance: float = 0.20  # of the recall of any one kind, which rests on few windows
    changed_kind_tolerance: float = 0.50  # … in a night whose day a person called the new normal
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


def choose(
    champion: Contestant,
    challengers: Sequence[Contestant],
    rule: Rule = Rule(),
    before: Sequence[Detection] = (),
    changed: bool = False,
) -> Choice:
    """The winner's name. `before` is what champions saw since the last change, so that many nights cannot wear it down;
    `changed`: a person called part of the day the new normal.
    """
    refused = {}
    better = [one for one in challengers if (one.error, one.false_alarms) < (champion.error, champion.false_alarms)]
    for one in sorted(better, key=lambda c: (c.error, c.false_alarms, c.name)):
        if rule.gate and (reason := blind(one, champion, rule, before, changed)):
            refused[one.name] = reason
            continue
        return Choice(one.name, _gain(one, champion), refused)
    because = "no challenger has a smaller error" if not refused else "those with a smaller error may not win"
    return Choice(champion.name, because, refused)


def _gain(one: Contestant, champion: Contestant) -> str:
    if one.error == champion.error:
        part = f"{one.false_alarms:.4f} of normal windows, not {champion.false_alarms:.4f}"
        return f"the champion's weights, calibrated anew: alarms on {part}"
    return f"error {one.error:.5f}, {100 * (1 - one.error / champion.error):.1f} % below the champion's"


def blind(
    one: Contestant, champion: Contestant, rule: Rule, before: Sequence[Detection] = (), changed: bool = False
) -> str:
    """Why a contestant may not win; empty: it may."""
    seen, now = one.detection, champion.detection
    noise = max(_noise(now, seen), champion.false_alarms - one.false_alarms if changed else 0.0)
    earlier = () if changed else before
    needed = max(
        now.mean - noise - rule.tolerance,
        *(best.mean - _noise(best, seen) - rule.worn for best in earlier),
        0.0,
    )
    if seen.mean < needed:
        return f"sees {seen.mean:.3f} of the golden set, {needed:.3f} are needed"
    for kind, recall in now.recall.items():
        least = recall - noise - (rule.changed_kind_tolerance if changed else rule.kind_tolerance)
        if seen.recall.get(kind, 0.0) < least:
            return f"sees {seen.recall.get(kind, 0.0):.3f} of {kind}, {least:.3f} are needed"
    most = rule.most_false_alarms * one.stated_rate
    if one.false_alarms > max(most, champion.false_alarms):
        return f"alarms on {one.false_alarms:.4f} of normal windows, {most:.4f} are allowed"
    return ""


def _noise(best: Detection, seen: Detection) -> float:
    """What a recall owes to alarms that the other does not give on normal windows: alarming at everything sees all."""
    return max(best.false_alarms - seen.false_alarms, 0.0)
