"""Evolution strategies: weights + sequences -> better weights. Mirrored noise, ranked outcomes, Adam.

The gradient of the mean outcome under noise on the weights, estimated from whole schedules (Salimans et al., 2017). It
needs no credit assignment, and the simulator is fast enough to afford it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.engine import Engine, each
from clustertwin.workload.policies import policy as find_policy
from clustertwin.workload.policies.learned import learned
from clustertwin.workload.rl.sequences import Pool
from clustertwin.workload.rl.worth import Rules, slowdowns
from clustertwin.workload.simulator.machine import Records


@dataclass(frozen=True, slots=True)
class EvolveSettings:
    pairs: int = 16  # of opposite steps
    sequences: int = 4  # each step is tried on
    noise: float = 0.1
    rate: float = 0.05
    reference: str = "sjf"  # outcomes are counted against this policy on the same sequence


@dataclass(frozen=True, slots=True)
class Trial:
    """Some candidates and what they are tried on, for a worker anywhere."""

    candidates: Sequence[NDArray[np.float64]]
    loads: Sequence[Records]
    rules: Rules
    workers: int | None  # threads; all cores unless told


@dataclass(slots=True)
class Evolution:
    """Where the search is; `weights` is the centre of the cloud, and only those at `free` move."""

    weights: NDArray[np.float64]
    free: NDArray[np.int64]
    first: NDArray[np.float64]  # of the free ones, as `second`
    second: NDArray[np.float64]
    generation: int = 0


def begin(weights: NDArray[np.float64], free: NDArray[np.int64] | None = None) -> Evolution:
    """A search from here, in all weights unless told."""
    free = np.arange(len(weights)) if free is None else free
    return Evolution(weights.copy(), free, np.zeros(len(free)), np.zeros(len(free)))


def outcomes(trial: Trial) -> NDArray[np.float64]:
    """Mean bounded slowdowns, (candidate, sequence)."""
    # What comes through Ray is read-only, and the compiled simulators take weights that could be written.
    return slowdowns([learned(w.copy()) for w in trial.candidates], trial.loads, trial.rules, trial.workers)


def _moved(state: Evolution, step: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = state.weights.copy()
    weights[state.free] += step
    return weights


def generation(
    state: Evolution,
    pool: Pool,
    rules: Rules,
    settings: EvolveSettings,
    rng: np.random.Generator,
    scale: float = 1.0,
    engine: Engine = "here",
) -> float:
    """One step of the search, `scale` times as long; gives the mean outcome over the reference's."""
    loads = [pool.draw(rng) for _ in range(settings.sequences)]
    reference = slowdowns([find_policy(settings.reference)], loads, rules)  # (1, sequence)
    noise = rng.standard_normal((settings.pairs, len(state.free)))
    tried = [_moved(state, sign * settings.noise * step) for step in noise for sign in (1.0, -1.0)]
    # Ratios, in logarithms: one crowded sequence must not outvote all others.
    outcome = np.log(_try(tried, loads, rules, engine) / reference).mean(axis=1)  # (2 pairs,)
    rank = outcome.argsort().argsort() / (len(outcome) - 1) - 0.5
    slope = (rank[0::2] - rank[1::2]) @ noise / (settings.pairs * settings.noise)

    state.generation += 1
    state.first = 0.9 * state.first + 0.1 * slope
    state.second = 0.99 * state.second + 0.01 * slope**2
    mean = state.first / (1 - 0.9**state.generation)
    spread = np.sqrt(state.second / (1 - 0.99**state.generation)) + 1e-8
    state.weights = _moved(state, -scale * settings.rate * mean / spread)
    return float(np.exp(outcome.mean()))


def _try(
    candidates: list[NDArray[np.float64]], loads: list[Records], rules: Rules, engine: Engine
) -> NDArray[np.float64]:
    """(candidate, sequence). Here the threads share all; on Ray a pair travels to a core."""
    if engine == "here":
        return outcomes(Trial(candidates, loads, rules, None))
    trials = [Trial(candidates[i : i + 2], loads, rules, 1) for i in range(0, len(candidates), 2)]
    return np.concatenate(each(outcomes, trials, engine))
