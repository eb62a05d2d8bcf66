"""Decide a duel: the results of all contestants -> the winner and the reason. Pure: no model, no clock.

A detector is worth what it sees minus what its false events cost, at one stated exchange rate. A challenger that is
worth less than the champion is rejected. Among contestants of equal worth the shortest description of held-out normal
windows wins, in bits, so that embeddings of different sizes can be compared. So a recalibrated champion, which has the
same bits, wins with fewer false events.

All contestants are measured on the same night: the same held-out moments, and the same faults imposed on the site's own
jobs. Earlier champions are measured again too, so that many small losses do not add up and a change of the site does
not hold a challenger to what nobody can reach any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
from clustertwin.telemetry.learning.duel.golden_set import GoldenSetResult


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str  # champion, or architecture/start
    error: float  # mean squared error on held-out normal windows
    false_alarms: float  # part of these windows above the threshold
    detection: GoldenSetResult
    bits: float = 0.0  # mean description length of these windows
    false_events: float = 0.0  # per node and day that its scores alone would open, on these windows
    raised: float = 0.0  # per node and day that findings would open with it; the duel does not count them
    strange: float = 1.0  # part of all looks at a job that its scores find strange

    def worth(self, rule: DuelRule) -> float:
        """The part of the faults that it sees, less the cost of its false events."""
        return self.detection.informedness - rule.false_event_cost * self.false_events


@dataclass(frozen=True, slots=True)
class DuelDecision:
    winner: str
    because: str
    refused: dict[str, str]  # challenger with a shorter description -> why the gate rejected it


def decide(
    champion: Contestant,
    challengers: Sequence[Contestant],
    rule: DuelRule = DuelRule(),
    baselines: Sequence[Contestant] = (),
) -> DuelDecision:
    """The winner of the duel. `baselines` are earlier champions, measured on this night."""
    if not rule.gate:
        return _smallest_error(champion, challengers)
    known = [c for c in challengers if not isnan(c.worth(rule)) and not isnan(c.bits)]
    required = required_worth(champion, rule, baselines)
    refused = {
        c.name: _loss(c, champion, rule, required)
        for c in known
        if c.worth(rule) < required and (c.bits, c.false_events) < (champion.bits, champion.false_events)
    }
    passing = [c for c in known if c.worth(rule) >= required]
    if passing:
        most = max(c.worth(rule) for c in passing)
        near = [c for c in passing if c.worth(rule) >= most - rule.tolerance]
        best = min(near, key=lambda c: (c.bits, c.false_events, c.name))
        if most > champion.worth(rule) + rule.tolerance:
            return DuelDecision(best.name, _gain(best, champion, rule), refused)
        if (best.bits, best.false_events) < (champion.bits, champion.false_events):
            return DuelDecision(best.name, _shorter(best, champion), refused)
    because = "the gate rejected every challenger with a shorter description" if refused else "no challenger is better"
    return DuelDecision(champion.name, because, refused)


def required_worth(champion: Contestant, rule: DuelRule, baselines: Sequence[Contestant] = ()) -> float:
    """A challenger that is worth less is rejected."""
    earlier = (baseline.worth(rule) - rule.worn for baseline in baselines)
    return max(champion.worth(rule) - rule.tolerance, *earlier, float("-inf"))


def _smallest_error(champion: Contestant, challengers: Sequence[Contestant]) -> DuelDecision:
    better = [c for c in challengers if (c.error, c.false_alarms) < (champion.error, champion.false_alarms)]
    if not better:
        return DuelDecision(champion.name, "no challenger has a smaller error", {})
    best = min(better, key=lambda c: (c.error, c.false_alarms, c.name))
    return DuelDecision(best.name, f"error {best.error:.5f} instead of {champion.error:.5f}", {})


def _figures(contestant: Contestant) -> str:
    return f"sees {contestant.detection.informedness:.2f} of the faults, {contestant.false_events:.1f} false events"


def _gain(winner: Contestant, champion: Contestant, rule: DuelRule) -> str:
    return (
        f"{_figures(winner)} per node-day (worth {winner.worth(rule):.2f}); "
        f"the champion {_figures(champion)} (worth {champion.worth(rule):.2f})"
    )


def _shorter(winner: Contestant, champion: Contestant) -> str:
    if winner.bits == champion.bits:
        rates = f"{winner.false_events:.2f} false events per node-day instead of {champion.false_events:.2f}"
        return f"the champion's weights, recalibrated: {rates}"
    return f"{winner.bits:.0f} bits per window instead of {champion.bits:.0f}, and as much worth"


def _loss(challenger: Contestant, champion: Contestant, rule: DuelRule, required: float) -> str:
    return (
        f"worth {challenger.worth(rule):.2f}, at least {required:.2f} is needed: {_figures(challenger)} per node-day; "
        f"the champion {_figures(champion)}"
    )
