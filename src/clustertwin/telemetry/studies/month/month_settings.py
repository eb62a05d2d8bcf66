"""What the month study compares: learning strategies, and the settings that all of them share."""

from __future__ import annotations

from dataclasses import dataclass

from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
from clustertwin.telemetry.learning.night.challengers import ChallengerTraining, Start
from clustertwin.telemetry.studies.month.simulated_month import MonthScenario
from clustertwin.telemetry.studies.month.simulated_vetting import Reviewers


@dataclass(frozen=True, slots=True)
class Strategy:
    name: str
    start: Start | None = None  # None: never learn
    replay: bool = False  # train on the rehearsal memory too
    gate: bool = False  # reject challengers that detect less of the golden set
    halt: bool = False  # a confirmed anomaly halts learning


#: The rows of the table.
STRATEGIES: tuple[Strategy, ...] = (
    Strategy("never"),
    Strategy("recalibrated", "recalibrated"),
    Strategy("scratch", "scratch"),
    Strategy("warm", "warm"),
    Strategy("warm+replay", "warm", replay=True),
    Strategy("warm+replay+gate", "warm", replay=True, gate=True),
    Strategy("warm+replay+halt", "warm", replay=True, halt=True),
    Strategy("warm+replay+gate+halt", "warm", replay=True, gate=True, halt=True),
)


#: What the nightly cycle does.
DEFAULT_STRATEGY = "warm+replay+gate+halt"


@dataclass(frozen=True, slots=True)
class MonthSettings:
    days: int = 30
    world: MonthScenario = MonthScenario()
    people: Reviewers = Reviewers()
    vetted: bool = True  # False: nobody gives a verdict
    training: ChallengerTraining = ChallengerTraining(epochs=4, warm_epochs=2)
    moments: int = 60  # sampled from each day
    replay_moments: int = 4  # of each role and day in the rehearsal memory
    replay_days: int = 8  # in the rehearsal memory
    rule: DuelRule = DuelRule()
    seed: int = 0
