"""Decide a duel: the results of all contestants -> the winner and the reason. Pure: no model, no clock.

The smallest error on held-out normal data wins, among the challengers that pass the gate. The gate rejects a challenger
that detects fewer golden-set anomalies than the champion: a detector that learned a fault reconstructs it well and
misses it. If two errors are equal, the contestants have the same weights, and the one with fewer false alarms wins. So
a recalibrated champion can win when no challenger reconstructs better.

The golden set never changes, but the cluster does. If a person marked part of the day as the new normal, the champion's
alarms on that day's windows count as false alarms, and its recall is reduced by their rate. In that night, results of
earlier champions are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustertwin.telemetry.learning.duel.golden_set import GoldenSetResult


@dataclass(frozen=True, slots=True)
class DuelRule:
    gate: bool = True  # False: the error alone decides, as in the reference system
    tolerance: float = 0.01  # allowed loss of mean recall against the champion
    worn: float = 0.03  # allowed loss against the best earlier champion: many small losses must not add up
    kind_tolerance: float = 0.20  # allowed loss of recall of one kind, which is measured on few windows
    changed_kind_tolerance: float = 0.50  # the same, if a person marked part of the day as the new normal
    most_false_alarms: float = 10.0  # times the nominal rate, on held-out normal windows


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str  # champion, or architecture/start
    error: float  # mean squared error on held-out normal windows
    false_alarms: float  # alarming part of these windows
    detection: GoldenSetResult
    stated_rate: float = 1e-3  # nominal false-alarm rate


@dataclass(frozen=True, slots=True)
class DuelDecision:
    winner: str
    because: str
    refused: dict[str, str]  # challenger with a smaller error -> why the gate rejected it


def decide(
    champion: Contestant,
    challengers: Sequence[Contestant],
    rule: DuelRule = DuelRule(),
    baselines: Sequence[GoldenSetResult] = (),
    new_normal: bool = False,
) -> DuelDecision:
    """The winner of the duel.

    `baselines` are the golden-set results of the champions since the last change. `new_normal` says that a person
    marked part of the day as the new normal.
    """
    refused = {}
    better = [c for c in challengers if (c.error, c.false_alarms) < (champion.error, champion.false_alarms)]
    for challenger in sorted(better, key=lambda c: (c.error, c.false_alarms, c.name)):
        if rule.gate and (reason := rejection(challenger, champion, rule, baselines, new_normal)):
            refused[challenger.name] = reason
            continue
        return DuelDecision(challenger.name, _improvement(challenger, champion), refused)
    because = "the gate rejected every better challenger" if refused else "no challenger has a smaller error"
    return DuelDecision(champion.name, because, refused)


def rejection(
    challenger: Contestant,
    champion: Contestant,
    rule: DuelRule,
    baselines: Sequence[GoldenSetResult] = (),
    new_normal: bool = False,
) -> str:
    """Why the gate rejects a challenger; empty if it passes."""
    result, current = challenger.detection, champion.detection
    excess = _excess_alarms(current, result)
    if new_normal:
        excess = max(excess, champion.false_alarms - challenger.false_alarms)
        baselines = ()
    required = max(
        current.mean_recall - excess - rule.tolerance,
        *(earlier.mean_recall - _excess_alarms(earlier, result) - rule.worn for earlier in baselines),
        0.0,
    )
    if result.mean_recall < required:
        return f"golden-set recall {result.mean_recall:.3f} is below the required {required:.3f}"
    for kind, recall in current.recall.items():
        required = recall - excess - (rule.changed_kind_tolerance if new_normal else rule.kind_tolerance)
        if result.recall.get(kind, 0.0) < required:
            return f"recall of {kind} {result.recall.get(kind, 0.0):.3f} is below the required {required:.3f}"
    allowed = rule.most_false_alarms * challenger.stated_rate
    if challenger.false_alarms > max(allowed, champion.false_alarms):
        return f"alarms on {challenger.false_alarms:.4f} of normal windows; {allowed:.4f} are allowed"
    return ""


def _improvement(winner: Contestant, champion: Contestant) -> str:
    if winner.error == champion.error:
        rates = f"{winner.false_alarms:.4f} of normal windows instead of {champion.false_alarms:.4f}"
        return f"the champion's weights, recalibrated, alarm on {rates}"
    return f"error {winner.error:.5f}, {100 * (1 - winner.error / champion.error):.1f} % below the champion's"


def _excess_alarms(reference: GoldenSetResult, result: GoldenSetResult) -> float:
    """How much more often the reference alarms on normal windows: that part of its recall is not detection."""
    return max(reference.false_alarms - result.false_alarms, 0.0)
