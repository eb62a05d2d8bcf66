"""The model of Lublin and Feitelson (1999; JPDC 2003), fitted to a log: sizes, run times, a daily cycle.

Sizes: serial, a power of two, or other; log2 of the size has a two-stage uniform distribution. Run times: their
logarithm is a mixture of two gamma distributions, whose weight falls linearly with the size. Arrivals: the half-hours
of the day have weights, and the logarithm of the intervals in weighted time is gamma distributed. The model has no
users and no limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S
from clustertwin.core.extras import require
from clustertwin.workload.generators.contract import Fitted, GeneratorState, check_log
from clustertwin.workload.generators.job_rows import RowDecoder
from clustertwin.workload.generators.workload_change import ModelledLog, check_count
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_sizes, machine_size

Floats = NDArray[np.float64]

BUCKETS = 48  # half-hours of a day
BLOCK_JOBS = 100_000
LONGEST = float(np.log1p(14 * DAY_S))  # of log(1 + interval): two weeks


@dataclass(frozen=True, slots=True)
class GammaFit:
    shape: float
    scale: float

    @classmethod
    def of(cls, values: Floats, weight: Floats | None = None) -> GammaFit:
        """Fit by the first two moments."""
        mean = float(np.average(values, weights=weight))
        variance = max(float(np.average((values - mean) ** 2, weights=weight)), 1e-9)
        return cls(mean * mean / variance, variance / mean)


@dataclass(frozen=True, slots=True)
class SizeModel:
    serial: float  # share of jobs of size one
    power: float  # share of powers of two among the other jobs
    low: float  # log2 of the size is uniform from low to middle, or from middle to high
    middle: float
    high: float
    lower: float  # share of the lower stage

    @classmethod
    def of(cls, size: NDArray[np.int64], machine: int) -> SizeModel:
        parallel = size[size > 1]
        high = float(np.log2(max(machine, 2)))
        if not len(parallel):
            return cls(1.0, 0.0, 0.0, high / 2, high, 0.5)
        logs = np.sort(np.log2(parallel))
        low, at = float(logs[0]), (np.arange(len(logs)) + 0.5) / len(logs)

        def distance(middle: float) -> float:
            lower = float(np.mean(logs <= middle))
            return float(np.abs(np.interp(logs, [low, middle, high], [0.0, lower, 1.0]) - at).max())

        inner = np.linspace(low, high, 52)[1:-1]
        middle = float(min(inner, key=distance)) if high > low else low
        power = float(np.mean(logs == np.round(logs)))
        return cls(float(np.mean(size == 1)), power, low, middle, high, float(np.mean(logs <= middle)))

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        lower = rng.random(n) < self.lower
        logs = np.where(lower, rng.uniform(self.low, self.middle, n), rng.uniform(self.middle, self.high, n))
        logs = np.where(rng.random(n) < self.power, np.round(logs), logs)
        return np.where(rng.random(n) < self.serial, 1, np.maximum(np.round(2.0**logs), 2)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class RunTimeModel:
    short: GammaFit  # of log(1 + run time)
    long: GammaFit
    weight: float  # of the short component at size zero
    slope: float  # change of the weight per unit of size

    @classmethod
    def of(cls, run_s: Floats, size: NDArray[np.int64], rounds: int = 100) -> RunTimeModel:
        """Expectation maximisation, starting from a split at the median; then a linear fit of the weights."""
        density = require("scipy.stats", "models").gamma.pdf
        logs = np.maximum(np.log1p(run_s), 1e-3)
        p_short = np.where(logs <= np.median(logs), 0.9, 0.1)
        for _ in range(rounds):
            short, long = GammaFit.of(logs, p_short), GammaFit.of(logs, 1 - p_short)
            share = float(np.clip(p_short.mean(), 0.01, 0.99))
            a = share * density(logs, short.shape, scale=short.scale)
            b = (1 - share) * density(logs, long.shape, scale=long.scale)
            p_short = np.clip((a + 1e-300) / (a + b + 2e-300), 1e-6, 1 - 1e-6)
        slope, weight = np.polyfit(size, p_short, 1) if len(np.unique(size)) > 1 else (0.0, p_short.mean())
        return cls(short, long, float(weight), float(slope))

    def draw(self, size: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        weight = np.clip(self.weight + self.slope * size, 0.05, 0.95)
        short = rng.random(len(size)) < weight
        logs = np.where(
            short,
            rng.gamma(self.short.shape, self.short.scale, len(size)),
            rng.gamma(self.long.shape, self.long.scale, len(size)),
        )
        return np.expm1(np.minimum(logs, 30.0))


@dataclass(frozen=True, slots=True)
class ArrivalModel:
    weights: tuple[float, ...]  # of the half-hours of a day, with mean 1
    interval: GammaFit  # of log(1 + interval in weighted time)
    scale: float  # makes the mean interval equal to the log's

    @classmethod
    def of(cls, submit_s: Floats) -> ArrivalModel:
        bucket = (submit_s % DAY_S // (DAY_S / BUCKETS)).astype(int)
        weights = np.maximum(np.bincount(bucket, minlength=BUCKETS) / len(submit_s) * BUCKETS, 0.02)
        weights = weights / weights.mean()
        weighted = _weighted(weights, submit_s)
        interval = GammaFit.of(np.log1p(np.maximum(np.diff(weighted), 0)) + 1e-9)
        # The mean of exp(gamma) may be infinite, so the scale uses the mean of capped draws, as `draw` makes them.
        drawn = np.expm1(np.minimum(np.random.default_rng(0).gamma(interval.shape, interval.scale, 200_000), LONGEST))
        scale = float((weighted[-1] - weighted[0]) / max(len(submit_s) - 1, 1) / max(drawn.mean(), 1e-9))
        return cls(tuple(weights.tolist()), interval, scale)

    def draw(self, n: int, clock: float, rng: np.random.Generator) -> tuple[Floats, float]:
        """The times of n arrivals, and the weighted time of the last one."""
        logs = np.minimum(rng.gamma(self.interval.shape, self.interval.scale, n), LONGEST)
        weighted = clock + np.cumsum(self.scale * np.expm1(logs))
        edges = np.append(0.0, np.cumsum(self.weights)) * (DAY_S / BUCKETS)
        within = np.interp(weighted % DAY_S, edges, np.linspace(0, DAY_S, BUCKETS + 1))
        return np.round(weighted // DAY_S * DAY_S + within), float(weighted[-1])


@dataclass(frozen=True, slots=True)
class Lublin:
    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedLublin:
        check_log(jobs)
        size = counted_sizes(jobs)
        return FittedLublin(
            SizeModel.of(size, machine_size(jobs)), RunTimeModel.of(jobs.run_s, size), ArrivalModel.of(jobs.submit_s),
            RowDecoder.of(jobs),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FittedLublin(Fitted):
    sizes: SizeModel
    runs: RunTimeModel
    arrivals: ArrivalModel
    decoder: RowDecoder

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        check_count(n)
        clock, last_s = 0.0, 0.0
        for drawn in range(0, n, BLOCK_JOBS):
            count = min(BLOCK_JOBS, n - drawn)
            submit_s, clock = self.arrivals.draw(count, clock, rng)
            size = self.sizes.draw(count, rng)
            columns = {"size": size, "run": self.runs.draw(size, rng), "interval": np.diff(submit_s, prepend=last_s)}
            block = self.decoder.jobs(columns, drawn, last_s)
            last_s = float(block.submit_s[-1])
            yield block

    def modelled_log(self) -> ModelledLog:
        return self.decoder.modelled_log()

    def state(self) -> GeneratorState:
        parts = {"sizes": asdict(self.sizes), "runs": asdict(self.runs), "arrivals": asdict(self.arrivals)}
        return GeneratorState({**parts, "frame": asdict(self.decoder)})

    @classmethod
    def from_state(cls, state: GeneratorState) -> FittedLublin:
        runs, arrivals = state.facts["runs"], state.facts["arrivals"]
        return cls(
            SizeModel(**state.facts["sizes"]),
            RunTimeModel(GammaFit(**runs["short"]), GammaFit(**runs["long"]), runs["weight"], runs["slope"]),
            ArrivalModel(tuple(arrivals["weights"]), GammaFit(**arrivals["interval"]), arrivals["scale"]),
            RowDecoder.from_facts(state.facts["frame"]),
        )


def _weighted(weights: Floats, submit_s: Floats) -> Floats:
    """Clock time -> weighted time, in which busy half-hours last longer and a day is still a day."""
    edges = np.append(0.0, np.cumsum(weights)) * (DAY_S / BUCKETS)
    within = np.interp(submit_s % DAY_S, np.linspace(0, DAY_S, BUCKETS + 1), edges)
    return submit_s // DAY_S * DAY_S + within
