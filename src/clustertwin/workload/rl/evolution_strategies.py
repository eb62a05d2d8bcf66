"""Evolution strategies (Salimans et al., 2017): policy weights + training sequences -> better weights.

Antithetic Gaussian perturbations, rank-based fitness shaping, Adam. The gradient is estimated from the slowdowns of
complete schedules, so no credit assignment is needed; the simulation is fast enough for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.engine import Engine, each
from clustertwin.workload.policies import find_policy
from clustertwin.workload.policies.learned import learned
from clustertwin.workload.rl.policy_evaluation import mean_slowdowns
from clustertwin.workload.rl.training_sequences import TrainingMachine, draw_in_turn
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.simulate_log import SchedulingRules


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """The population and the step sizes."""

    pairs: int = 16  # antithetic pairs in a generation
    sequences: int = 4  # each candidate is evaluated on; of several machines, in turn
    noise_std: float = 0.1
    learning_rate: float = 0.05
    reference: str = "sjf"  # slowdowns count relative to this policy on the same sequence


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    """Candidates and the sequences to evaluate them on; it can be sent to a worker."""

    candidates: Sequence[NDArray[np.float64]]
    sequences: Sequence[Records]
    rules: SchedulingRules
    threads: int | None  # one for each core if None


@dataclass(slots=True)
class EvolutionState:
    """The mean of the search distribution, the weights that the search changes, and Adam's moments."""

    weights: NDArray[np.float64]
    trainable: NDArray[np.int64]  # indices of `weights`
    first_moment: NDArray[np.float64]
    second_moment: NDArray[np.float64]
    generation: int = 0


def start_search(weights: NDArray[np.float64], trainable: NDArray[np.int64] | None = None) -> EvolutionState:
    """A search from these weights. By default all of them are trainable."""
    trainable = np.arange(len(weights)) if trainable is None else trainable
    return EvolutionState(weights.copy(), trainable, np.zeros(len(trainable)), np.zeros(len(trainable)))


def evaluate_candidates(batch: CandidateBatch) -> NDArray[np.float64]:
    """The mean bounded slowdowns, (candidate, sequence)."""
    # Arrays from Ray are read-only, and the compiled simulation takes writable weights.
    policies = [learned(weights.copy()) for weights in batch.candidates]
    return mean_slowdowns(policies, batch.sequences, batch.rules, batch.threads)


def next_generation(
    state: EvolutionState,
    machines: Sequence[TrainingMachine],
    settings: EvolutionSettings,
    rng: np.random.Generator,
    step_scale: float,
    engine: Engine,
) -> float:
    """Make one step of the search. Returns the mean slowdown of the candidates relative to the reference policy."""
    drawn = draw_in_turn(machines, settings.sequences, rng)
    policy = find_policy(settings.reference)
    reference = np.hstack([mean_slowdowns([policy], sequences, rules) for rules, sequences in drawn])  # (1, sequence)
    noise = rng.standard_normal((settings.pairs, len(state.trainable)))
    candidates = [_moved(state, sign * settings.noise_std * step) for step in noise for sign in (1.0, -1.0)]
    slowdowns = np.hstack([_evaluate(candidates, sequences, rules, engine) for rules, sequences in drawn])
    # The mean of logarithms: a single crowded sequence must not outweigh all others.
    log_ratio = np.log(slowdowns / reference).mean(axis=1)  # (candidate,)
    fitness_rank = log_ratio.argsort().argsort() / (len(log_ratio) - 1) - 0.5
    gradient = (fitness_rank[0::2] - fitness_rank[1::2]) @ noise / (settings.pairs * settings.noise_std)

    # Adam with β1 = 0.9 and β2 = 0.99.
    state.generation += 1
    state.first_moment = 0.9 * state.first_moment + 0.1 * gradient
    state.second_moment = 0.99 * state.second_moment + 0.01 * gradient**2
    mean = state.first_moment / (1 - 0.9**state.generation)
    rms = np.sqrt(state.second_moment / (1 - 0.99**state.generation)) + 1e-8
    state.weights = _moved(state, -step_scale * settings.learning_rate * mean / rms)
    return float(np.exp(log_ratio.mean()))


def _moved(state: EvolutionState, step: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = state.weights.copy()
    weights[state.trainable] += step
    return weights


def _evaluate(
    candidates: list[NDArray[np.float64]], sequences: list[Records], rules: SchedulingRules, engine: Engine
) -> NDArray[np.float64]:
    """The slowdowns, (candidate, sequence): with threads in this process, or one antithetic pair for each Ray task."""
    if engine == "here":
        return evaluate_candidates(CandidateBatch(candidates, sequences, rules, None))
    batches = [CandidateBatch(candidates[i : i + 2], sequences, rules, 1) for i in range(0, len(candidates), 2)]
    return np.concatenate(each(evaluate_candidates, batches, engine))
