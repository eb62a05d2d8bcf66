"""Train a policy: job records -> masked PPO, then evolution strategies -> the best weights and the training curve.

The run writes a checkpoint after every round. A run that was killed continues from there with the same result; a
checkpoint of another log, machine or other settings is refused.
Candidates are validated on sequences of their own from the same jobs, never on held-out ones. With the logs of several
machines every machine counts the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.engine import Engine
from clustertwin.workload.policies import Policy, find_policy
from clustertwin.workload.policies.learned import FIRST_UNIT, ORDER_FEATURES, initial_weights, learned
from clustertwin.workload.rl import checkpoint
from clustertwin.workload.rl.evolution_strategies import (
    EvolutionSettings,
    EvolutionState,
    next_generation,
    start_search,
)
from clustertwin.workload.rl.policy_evaluation import mean_slowdowns
from clustertwin.workload.rl.training_record import differences, record_training
from clustertwin.workload.rl.training_sequences import TrainingData, TrainingMachine, draw_in_turn, training_machines
from clustertwin.workload.simulator.simulate_log import SchedulingRules

#: Random weights, or the best of three simple orders.
Start = Literal["nothing", "order"]

VALIDATION_LENGTH = 1024  # jobs in a validation sequence, if those of the training are not longer

_START_ANEW = "Choose another --out, or use --force to start again and overwrite it"


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """The stages of a training and their budgets. The settings are saved with the run."""

    ppo_rounds: int = 20
    evolve_rounds: int = 60
    ppo_length: int = 256  # jobs in a training sequence of PPO
    evolve_length: int = 512
    validation_sequences: int = 16
    validate_every: int = 5  # rounds
    seed: int = 0
    start: Start = "nothing"
    evolve: EvolutionSettings = field(default_factory=EvolutionSettings)
    lead_rounds: int = 20  # with start="order": evolution of the ten weights of the order, before PPO
    lead: EvolutionSettings = EvolutionSettings(pairs=12, sequences=8, noise_std=0.5, learning_rate=0.4)

    def with_sequences(self, sequences: int) -> TrainSettings:
        """Evaluate each generation on this number of sequences, and validate on six times as many.

        Slowdowns have long tails, so that few sequences select by chance. A search from an order takes small steps, to
        keep the order at first.
        """
        learning_rate = 0.02 if self.start == "order" else self.evolve.learning_rate
        evolve = replace(self.evolve, sequences=sequences, learning_rate=learning_rate)
        lead = replace(self.lead, sequences=sequences)
        return replace(self, validation_sequences=6 * sequences, evolve=evolve, lead=lead)

    @property
    def stages(self) -> dict[str, int]:
        """The number of rounds of each stage, in order."""
        lead = self.lead_rounds if self.start == "order" else 0
        return {"lead": lead, "ppo": self.ppo_rounds, "evolve": self.evolve_rounds}


@dataclass(frozen=True, slots=True)
class TrainingRound:
    """One point of the training curve. Ratios are relative to SJF on the same sequences; below 1 is better.

    The names of the fields are part of the checkpoint format.
    """

    stage: str
    number: int
    ratio: float  # of the training sequences
    judged_ratio: float | None  # of the validation sequences
    seconds: float


@dataclass(frozen=True, slots=True)
class TrainedPolicy:
    weights: NDArray[np.float64]
    validation_ratio: float
    rounds: tuple[TrainingRound, ...]
    seconds: float  # of work, over all resumptions


Report = Callable[[TrainingRound], None]


def train(
    data: TrainingData,
    rules: SchedulingRules,
    settings: TrainSettings,
    out: Path,
    report: Report = lambda _: None,
    resume: bool = True,
    engine: Engine = "here",
    clock: Callable[[], float] = time.monotonic,
) -> TrainedPolicy:
    """Train a policy and write it to `out`, which is also the checkpoint that the run resumes from.

    The engine runs the rollouts and candidates. The training curve and the weights do not depend on it.
    """
    run = _TrainingRun(data, rules, settings, out, report, engine, clock)
    if resume and out.exists():
        run.restore()
    run.evolve_first_unit()
    run.ppo()
    run.evolve_all()
    return TrainedPolicy(run.best, run.best_ratio, tuple(run.rounds), run.seconds())


def parse_ranges(texts: Sequence[str]) -> list[tuple[int, int]]:
    """`FIRST:LAST` -> ranges of jobs."""
    try:
        return [(int(first), int(last)) for first, last in (text.split(":") for text in texts)]
    except ValueError as error:
        raise SettingsError(f"a range of jobs is FIRST:LAST, not {' '.join(texts)!r}") from error


class _TrainingRun:
    """The state of a training run; a checkpoint holds what a resumed run needs."""

    def __init__(
        self,
        data: TrainingData,
        rules: SchedulingRules,
        settings: TrainSettings,
        out: Path,
        report: Report,
        engine: Engine,
        clock: Callable[[], float],
    ) -> None:
        self.rules, self.settings, self.out, self.report, self.clock = rules, settings, out, report, clock
        self.data, self.engine = data, engine
        self.record = record_training(data, rules, asdict(settings))
        rng = np.random.default_rng([settings.seed, 1])
        length = max(VALIDATION_LENGTH, settings.evolve_length)
        self.validation = draw_in_turn(self.machines(length), settings.validation_sequences, rng)
        self.sjf_slowdowns = self.validation_slowdowns([find_policy("sjf")])[0]
        self.begun, self.before = clock(), 0.0
        self.rounds: list[TrainingRound] = []
        self.arrays: dict[str, NDArray[Any]] = {}
        self.best, self.best_ratio = np.zeros(0), np.inf

    def machines(self, length: int) -> tuple[TrainingMachine, ...]:
        return training_machines(self.data, self.rules, length)

    def validation_slowdowns(self, policies: Sequence[Policy]) -> NDArray[np.float64]:
        """The mean slowdowns on the validation sequences, (policy, machine)."""
        drawn = self.validation
        return np.stack([mean_slowdowns(policies, of_one, rules).mean(axis=1) for rules, of_one in drawn], axis=1)

    def validation_ratios(self, policies: Sequence[Policy]) -> list[float]:
        """The geometric means, over the machines, of the slowdowns relative to SJF."""
        ratios = self.validation_slowdowns(policies) / self.sjf_slowdowns
        return [math.prod(of_one) ** (1 / len(of_one)) for of_one in ratios.tolist()]

    def seconds(self) -> float:
        return self.before + self.clock() - self.begun

    def completed(self, stage: str) -> int:
        """The number of rounds of a stage that this run has completed."""
        return sum(1 for entry in self.rounds if entry.stage == stage)

    def validate(self, weights: NDArray[np.float64]) -> float:
        """The mean slowdown on the validation sequences relative to SJF. Keeps the best weights."""
        [ratio] = self.validation_ratios([learned(weights)])
        if ratio < self.best_ratio:
            self.best, self.best_ratio = weights.copy(), ratio
        return ratio

    def finish_round(
        self, stage: str, ratio: float, weights: NDArray[np.float64], arrays: dict[str, NDArray[Any]]
    ) -> None:
        """Validate if it is time, save a checkpoint and report."""
        number = self.completed(stage) + 1
        due = number == 1 or number % self.settings.validate_every == 0
        validation_ratio = self.validate(weights) if due else None
        self.rounds.append(TrainingRound(stage, number, ratio, validation_ratio, self.seconds()))
        self.arrays = arrays
        self.save()
        self.report(self.rounds[-1])

    def save(self) -> None:
        values = {
            **self.record,
            "best_ratio": self.best_ratio,
            "seconds": self.seconds(),
            "rounds": [asdict(entry) for entry in self.rounds],
        }
        checkpoint.save(self.out, {"policy": self.best, **self.arrays}, values)

    def restore(self) -> None:
        arrays, values = checkpoint.read(self.out)
        if changed := differences(values, self.record):
            raise SettingsError(f"{self.out} is a training with {'; '.join(changed)}. {_START_ANEW}")
        self.best, self.best_ratio = arrays.pop("policy"), values["best_ratio"]
        if "data" not in values and not self.reproduces_best_ratio():
            raise SettingsError(
                f"{self.out} does not record its log, and its policy does not have the recorded result on this one: "
                f"it is a training on another log or of an earlier version. {_START_ANEW}"
            )
        self.arrays, self.before = arrays, values["seconds"]
        self.rounds = [TrainingRound(**entry) for entry in values["rounds"]]

    def reproduces_best_ratio(self) -> bool:
        """Whether the restored policy has its recorded ratio on the validation sequences of this log."""
        [ratio] = self.validation_ratios([learned(self.best)])
        return math.isclose(ratio, self.best_ratio, rel_tol=1e-6)

    def first_weights(self) -> NDArray[np.float64]:
        """Random weights, or the simple order with the lowest slowdown on the validation sequences."""
        seed = [self.settings.seed, 4]
        if self.settings.start == "nothing":
            return initial_weights(ORDER_FEATURES[0], np.random.default_rng(seed), sharpness=0.0)
        candidates = [initial_weights(feature, np.random.default_rng(seed)) for feature in ORDER_FEATURES]
        return candidates[int(np.argmin(self.validation_ratios([learned(weights) for weights in candidates])))]

    def evolve_first_unit(self) -> None:
        """The first stage of a run that starts from an order: few rounds are enough for ten weights, not for 768."""
        if self.completed("lead") < self.settings.stages["lead"]:
            self.evolve("lead", start_search(self.first_weights(), FIRST_UNIT), self.settings.lead)

    def ppo(self) -> None:
        """The second stage. Each round has its own seed, so that a resumed run draws the same numbers."""
        if self.completed("ppo") >= self.settings.ppo_rounds:
            return
        from clustertwin.workload.rl.ppo import Ppo, PpoSettings

        seed = self.settings.seed
        weights = self.best if self.completed("lead") else self.first_weights()
        learner = Ppo(self.machines(self.settings.ppo_length), PpoSettings(), weights, seed, self.engine)
        if self.completed("ppo"):
            learner.load_arrays(self.arrays)
        while (number := self.completed("ppo")) < self.settings.ppo_rounds:
            ratio = learner.iterate(np.random.default_rng([seed, 2, number]))
            self.finish_round("ppo", ratio, learner.actor.vector(), learner.arrays())

    def evolve_all(self) -> None:
        """The last stage: evolution of all weights, from the best so far."""
        weights = self.best if len(self.best) else self.first_weights()
        self.evolve("evolve", start_search(weights), self.settings.evolve)

    def evolve(self, stage: str, state: EvolutionState, settings: EvolutionSettings) -> None:
        """The remaining generations of a stage. Steps get smaller towards the end."""
        total = self.settings.stages[stage]
        if completed := self.completed(stage):
            names = ("centre", "first", "second")
            state.weights, state.first_moment, state.second_moment = (self.arrays[name] for name in names)
            state.generation = completed
        machines = self.machines(self.settings.evolve_length)
        while (number := self.completed(stage)) < total:
            rng = np.random.default_rng([self.settings.seed, 3, number])
            step_scale = 1.0 - number / total
            ratio = next_generation(state, machines, settings, rng, step_scale, self.engine)
            arrays = {"centre": state.weights, "first": state.first_moment, "second": state.second_moment}
            self.finish_round(stage, ratio, state.weights, arrays)
