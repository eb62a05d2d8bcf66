"""Train a policy: a load -> masked PPO, then evolution -> the best weights seen, and a report of how it went.

All stages write a checkpoint after every round; a run that was killed goes on from there and ends where it would have.
Candidates are judged on sequences of their own, drawn from the same pool, never on what is held out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.engine import Engine
from clustertwin.workload.policies import policy as find_policy
from clustertwin.workload.policies.learned import LEAD, ORDERS, beginner, learned
from clustertwin.workload.rl import checkpoint
from clustertwin.workload.rl.evolve import Evolution, EvolveSettings, begin, generation
from clustertwin.workload.rl.sequences import Pool, pool
from clustertwin.workload.rl.worth import Rules, slowdowns
from clustertwin.workload.simulator.machine import Records

#: From random weights, or from the best of three simple orders.
Start = Literal["nothing", "order"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How long and on what; the resolved settings are saved with the run."""

    ppo_rounds: int = 20
    evolve_rounds: int = 60
    length: int = 256  # jobs in a training sequence of PPO
    evolve_length: int = 512
    judged_on: int = 16  # sequences of 1,024 jobs
    judge_every: int = 5
    seed: int = 0
    start: Start = "nothing"
    evolve: EvolveSettings = field(default_factory=EvolveSettings)
    lead_rounds: int = 20  # of evolution in the ten weights of the order that `start="order"` begins with
    lead: EvolveSettings = EvolveSettings(pairs=12, sequences=8, noise=0.5, rate=0.4)

    def tried_on(self, sequences: int) -> TrainSettings:
        """The same, but every generation is tried on so many sequences, and the best is chosen on six times as many.

        Slowdowns have long tails: on few sequences luck decides. Steps from an order are small, not to lose it at once.
        """
        rate = 0.02 if self.start == "order" else self.evolve.rate
        evolve, lead = replace(self.evolve, sequences=sequences, rate=rate), replace(self.lead, sequences=sequences)
        return replace(self, judged_on=6 * sequences, evolve=evolve, lead=lead)

    @property
    def stages(self) -> dict[str, int]:
        """The rounds of each stage, in order."""
        lead = self.lead_rounds if self.start == "order" else 0
        return {"lead": lead, "ppo": self.ppo_rounds, "evolve": self.evolve_rounds}


@dataclass(frozen=True, slots=True)
class Round:
    """One line of the training curve. Ratios are against SJF on the same sequences; below 1 is better."""

    stage: str
    number: int
    ratio: float
    judged_ratio: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Trained:
    weights: NDArray[np.float64]
    judged_ratio: float
    rounds: tuple[Round, ...]
    seconds: float  # of work, over all resumptions


Report = Callable[[Round], None]


def train(
    load: Records,
    rules: Rules,
    settings: TrainSettings,
    out: Path,
    held_out: Sequence[tuple[int, int]] = (),
    report: Report = lambda _: None,
    resume: bool = True,
    also: Sequence[Records] = (),
    clock: Callable[[], float] = time.monotonic,
    engine: Engine = "here",
) -> Trained:
    """Train on a load, without the jobs held out, and on others `also`, writing `out` as it goes.

    The engine says where rollouts and candidates run; the curve and the weights are the same on each.
    """
    lengths = {settings.length, settings.evolve_length, 1024}
    pools = {n: pool(load, n, held_out, also) for n in lengths}
    run = _Run(pools, rules, settings, out, report, clock, engine)
    if resume and out.exists():
        run.restore()
    run.lead()
    run.ppo()
    run.evolve()
    return Trained(run.best, run.best_ratio, tuple(run.rounds), run.seconds())


def ranges(texts: Sequence[str]) -> list[tuple[int, int]]:
    """`FIRST:LAST` -> ranges of jobs."""
    try:
        return [(int(first), int(last)) for first, last in (text.split(":") for text in texts)]
    except ValueError as reason:
        raise SettingsError(f"held-out jobs are given as FIRST:LAST, not as {' '.join(texts)!r}") from reason


class _Run:
    """The state of a training run, as far as it must survive a kill."""

    def __init__(
        self,
        pools: dict[int, Pool],
        rules: Rules,
        settings: TrainSettings,
        out: Path,
        report: Report,
        clock: Callable[[], float],
        engine: Engine,
    ) -> None:
        self.rules, self.settings, self.out, self.report, self.clock = rules, settings, out, report, clock
        self.pools, self.engine = pools, engine
        judge = np.random.default_rng([settings.seed, 1])
        self.judged_on = [self.pools[1024].draw(judge) for _ in range(settings.judged_on)]
        self.reference = slowdowns([find_policy("sjf")], self.judged_on, rules)[0]
        self.begun, self.before = clock(), 0.0
        self.rounds: list[Round] = []
        self.arrays: dict[str, NDArray[Any]] = {}
        self.best, self.best_ratio = np.zeros(0), np.inf

    def seconds(self) -> float:
        return self.before + self.clock() - self.begun

    def done(self, stage: str) -> int:
        return sum(1 for entry in self.rounds if entry.stage == stage)

    def judge(self, weights: NDArray[np.float64]) -> float:
        """The mean slowdown of a candidate on the judged sequences, against SJF's."""
        ratio = float(slowdowns([learned(weights)], self.judged_on, self.rules)[0].mean() / self.reference.mean())
        if ratio < self.best_ratio:
            self.best, self.best_ratio = weights.copy(), ratio
        return ratio

    def note(self, stage: str, ratio: float, weights: NDArray[np.float64], arrays: dict[str, NDArray[Any]]) -> None:
        """End a round: judge now and then, tell, save."""
        number = self.done(stage) + 1
        judged = self.judge(weights) if number == 1 or number % self.settings.judge_every == 0 else None
        self.rounds.append(Round(stage, number, ratio, judged, self.seconds()))
        self.arrays = arrays
        self.save()
        self.report(self.rounds[-1])

    def save(self) -> None:
        values = {
            "settings": asdict(self.settings),
            "rules": asdict(self.rules),
            "best_ratio": self.best_ratio,
            "seconds": self.seconds(),
            "rounds": [asdict(entry) for entry in self.rounds],
        }
        checkpoint.save(self.out, {"policy": self.best, **self.arrays}, values)

    def restore(self) -> None:
        arrays, values = checkpoint.read(self.out)
        if values["rules"] != asdict(self.rules):
            raise SettingsError(f"{self.out} was trained for another machine or backfilling: {values['rules']}")
        self.best, self.best_ratio = arrays.pop("policy"), values["best_ratio"]
        self.arrays, self.before = arrays, values["seconds"]
        self.rounds = [Round(**entry) for entry in values["rounds"]]

    def beginning(self) -> NDArray[np.float64]:
        """Weights that know nothing, or the simple order that does best on the judged sequences."""
        if self.settings.start == "nothing":
            return beginner(ORDERS[0], np.random.default_rng([self.settings.seed, 4]), sharpness=0.0)
        tried = [beginner(order, np.random.default_rng([self.settings.seed, 4])) for order in ORDERS]
        worth = slowdowns([learned(weights) for weights in tried], self.judged_on, self.rules).mean(axis=1)
        return tried[int(worth.argmin())]

    def lead(self) -> None:
        """The first stage, where a run begins from an order: ten weights are found in few rounds, 768 are not."""
        if self.done("lead") < self.settings.stages["lead"]:
            self.search("lead", begin(self.beginning(), LEAD), self.settings.lead)

    def ppo(self) -> None:
        """The second stage. Each round has a seed of its own: a resumed run draws what it would have drawn."""
        if self.done("ppo") >= self.settings.ppo_rounds:
            return
        from clustertwin.workload.rl.ppo import Ppo, PpoSettings

        sequences, seed = self.pools[self.settings.length], self.settings.seed
        weights = self.best if self.done("lead") else self.beginning()
        learner = Ppo(sequences, self.rules, PpoSettings(), weights, seed, self.engine)
        if self.done("ppo"):
            learner.load_arrays(self.arrays)
        while (number := self.done("ppo")) < self.settings.ppo_rounds:
            ratio = learner.iterate(np.random.default_rng([seed, 2, number]))
            self.note("ppo", ratio, learner.actor.vector(), learner.arrays())

    def evolve(self) -> None:
        """The last stage, from the best there is, in all weights."""
        self.search("evolve", begin(self.best if len(self.best) else self.beginning()), self.settings.evolve)

    def search(self, stage: str, state: Evolution, settings: EvolveSettings) -> None:
        """The generations of a stage, or what a killed run has left of them; steps shrink towards the end."""
        total = self.settings.stages[stage]
        if done := self.done(stage):
            state.weights, state.first, state.second = (self.arrays[name] for name in ("centre", "first", "second"))
            state.generation = done
        while (number := self.done(stage)) < total:
            rng = np.random.default_rng([self.settings.seed, 3, number])
            left = 1.0 - number / total
            sequences = self.pools[self.settings.evolve_length]
            ratio = generation(state, sequences, self.rules, settings, rng, left, self.engine)
            arrays = {"centre": state.weights, "first": state.first, "second": state.second}
            self.note(stage, ratio, state.weights, arrays)


__all__ = ["Pool", "Round", "Start", "TrainSettings", "Trained", "ranges", "train"]
