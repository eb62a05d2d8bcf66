"""The private generator: a log -> noisy counts with user-level (ε, δ) differential privacy -> synthetic logs.

`released_statistics` is the only reader of the log. Everything after it is post-processing, which costs no privacy: the
model, and every log drawn from it, carry the same guarantee. The following facts are taken to be public: the size of
the machine, its cpus per node, the first and the last day of the log, its time zone, and which columns it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S
from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.workload.generators.contract import Fitted, GeneratorState, check_log
from clustertwin.workload.generators.job_limits import limit_is_run_time
from clustertwin.workload.generators.private.daily_work import DailyWork
from clustertwin.workload.generators.private.noisy_sums import NoisySums, secret_noise
from clustertwin.workload.generators.private.privacy_budget import noise_multipliers, spent_epsilon
from clustertwin.workload.generators.private.protected_units import ProtectedUnits, protected_units
from clustertwin.workload.generators.private.public_grid import PublicGrid
from clustertwin.workload.generators.private.released_statistics import ReleasedStatistics, queries, release
from clustertwin.workload.generators.private.session_sampler import SessionSampler
from clustertwin.workload.generators.workload_change import ModelledLog, check_count
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.machine_size import counted_unit, stated_machine_size

Floats = NDArray[np.float64]

DEFAULT_EPSILON = 8.0
DEFAULT_DELTA = 1e-6
LEAST_UNITS = 5
BLOCK_JOBS = 2_000
CERTAIN_KINDS = 10  # of sessions, each above twice its noise: with fewer a log is mostly noise


@dataclass(frozen=True, slots=True)
class Private:
    """The settings. ε = inf switches the noise off; then there is no guarantee."""

    epsilon: float = DEFAULT_EPSILON
    delta: float = DEFAULT_DELTA
    machine: int | None = None  # default: the size that the log states
    public_load: float | None = None  # the offered load, if it is published anyway; it then costs no privacy
    noise_seed: int | None = None  # only for tests: whoever knows it can remove the noise

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedPrivate:
        """The seed of `rng` may be known, so the noise does not come from it."""
        if self.public_load is not None and not 0 < self.public_load < float("inf"):
            raise SettingsError(f"a public load of {self.public_load:g} is not an offered load, such as 0.7")
        check_log(jobs)
        units = protected_units(jobs)
        _check_units(units)
        unit = counted_unit(jobs)
        with_limits = bool(np.mean(jobs.request_s > 0) > 0.5) and not limit_is_run_time(jobs)
        grid = PublicGrid(self.machine or stated_machine_size(jobs, unit), with_limits, fine_sizes=True)
        days = int(jobs.submit_s[-1] // DAY_S - jobs.submit_s[0] // DAY_S) + 1
        multipliers = noise_multipliers(queries(grid, self.public_load is not None), self.epsilon, self.delta)
        noise = secret_noise if self.noise_seed is None else np.random.default_rng(self.noise_seed).standard_normal
        released = release(jobs, units, grid, days, NoisySums(multipliers, noise), self.public_load)
        return FittedPrivate.of(grid, released, PublicFacts.of(jobs, days), Guarantee(
            spent_epsilon(multipliers, self.delta), self.delta, multipliers, self.public_load is not None,
            units.days > 0,
        ))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What is promised, in the terms of the accountant."""

    epsilon: float  # infinite: nothing is promised
    delta: float
    noise_multipliers: dict[str, float]  # query -> standard deviation of its noise, in bounds of a unit
    load_is_public: bool
    protects_days: bool  # some jobs have no user: there a unit is all such jobs of one day

    @property
    def unit(self) -> str:
        return "a user; for jobs without a user, all such jobs of one day" if self.protects_days else "a user"


@dataclass(frozen=True, slots=True)
class PublicFacts:
    """What is taken from the log without noise."""

    unit: str
    cpus_per_node: int
    epoch_s: float  # midnight of the first day, in local time
    timezone: str
    days: int
    machine_name: str

    @classmethod
    def of(cls, jobs: Jobs, days: int) -> PublicFacts:
        epoch_s = 0.0
        if jobs.epoch_s:
            first = datetime.fromtimestamp(jobs.epoch_s + float(jobs.submit_s[0]), UTC).astimezone(
                ZoneInfo(jobs.timezone)
            )
            epoch_s = first.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        return cls(counted_unit(jobs), jobs.machine.cpus_per_node, epoch_s, jobs.timezone, days, jobs.machine.name)

    def first_weekday(self) -> int:
        """The weekday of time zero in local time, 0 for Monday; a log without a date begins on a Monday."""
        return (
            datetime.fromtimestamp(self.epoch_s, UTC).astimezone(ZoneInfo(self.timezone)).weekday()
            if self.epoch_s
            else 0
        )


@dataclass(frozen=True, slots=True)
class FittedPrivate(Fitted):
    """Released statistics and public facts: nothing else of the log is left."""

    grid: PublicGrid
    released: ReleasedStatistics
    facts: PublicFacts
    guarantee: Guarantee
    sampler: SessionSampler

    @classmethod
    def of(
        cls, grid: PublicGrid, released: ReleasedStatistics, facts: PublicFacts, guarantee: Guarantee
    ) -> FittedPrivate:
        return cls(grid, released, facts, guarantee, SessionSampler.of(released, grid))

    @property
    def load(self) -> float:
        """The offered load of the periods in which the site is in use. A synthetic log has no others."""
        return self.released.load / self.released.in_use

    @property
    def expected_jobs(self) -> int:
        """The jobs of a synthetic log as long as the real one."""
        sessions = self.load * self.grid.machine * DAY_S * self.facts.days / self.sampler.session_work
        return max(1, round(sessions * self.sampler.session_jobs))

    @property
    def mostly_noise(self) -> bool:
        """Whether the log has too few users for this ε: only a few kinds of sessions can be told from noise."""
        users = float(self.released.activity.sum())  # a noisy count, so this may be published
        return bool(users < CERTAIN_KINDS * 2 * self.guarantee.noise_multipliers.get("kind", 0.0))

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        check_count(n)
        return self._blocks(n, rng)

    def _blocks(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        """Blocks of whole days. The part of a session beyond its day waits for the next day."""
        left, drawn = n, 0
        late, ready = np.empty((6, 0)), [np.empty((6, 0))]
        plan, machine_day = self._plan(rng), self.grid.machine * DAY_S
        for day, (work, weekend) in enumerate(plan.days()):
            at_s, user, jobs = self.sampler.day(work * machine_day, weekend, rng)
            plan.submitted(float(jobs.work.sum()) / machine_day)
            table = np.stack([at_s + day * DAY_S, user, jobs.size, jobs.limit_s, jobs.run_s, jobs.status])
            table = np.concatenate([late, table], axis=1)
            table = table[:, np.argsort(table[0], kind="stable")]
            due = int(np.searchsorted(table[0], (day + 1) * DAY_S))
            late = table[:, due:]
            ready.append(table[:, :due])
            count = sum(part.shape[1] for part in ready)
            if count >= min(left, BLOCK_JOBS):
                block = np.concatenate(ready, axis=1)[:, :left]
                ready = []
                yield self._jobs(block, drawn)
                drawn += block.shape[1]
                left -= block.shape[1]
                if not left:
                    return

    def _plan(self, rng: np.random.Generator) -> DailyWork:
        weekday, weekend = self.released.hour.sum(axis=1)
        return DailyWork(self.load, float(weekend / weekday), self.facts.first_weekday(), rng)

    def _jobs(self, table: Floats, drawn: int) -> Jobs:
        at_s, user, size, limit_s, run_s, status = table
        given: dict[str, Any] = {self.facts.unit: size, "id": np.arange(drawn + 1, drawn + len(size) + 1)}
        if self.facts.unit == "nodes" and self.facts.cpus_per_node:
            given["cpus"] = size * self.facts.cpus_per_node
        if self.grid.with_limits:
            given["request_s"] = limit_s
        each = self.facts.cpus_per_node if self.facts.unit == "nodes" else 1
        machine = Machine(self.grid.machine, each, name=self.facts.machine_name)
        return Jobs.build(at_s, run_s, user=user, status=status, **given, epoch_s=self.facts.epoch_s,
                          timezone=self.facts.timezone, machine=machine)  # fmt: skip

    def modelled_log(self) -> ModelledLog:
        return ModelledLog(self.grid.machine, frozenset(range(len(self.sampler.user_share))))

    def state(self) -> GeneratorState:
        released = asdict(self.released)
        classes = released.pop("classes")
        scalars = {name: released.pop(name) for name in ("load", "clip_sessions", "in_use")}
        arrays = {**released, **{f"class_{name}": values for name, values in classes.items()}}
        guarantee = asdict(self.guarantee)
        if np.isinf(self.guarantee.epsilon):
            guarantee["epsilon"] = None  # JSON has no infinity
        facts = {"grid": asdict(self.grid), "released": scalars, "public": asdict(self.facts), "guarantee": guarantee}
        return GeneratorState(facts, arrays)

    @classmethod
    def from_state(cls, state: GeneratorState) -> FittedPrivate:
        arrays = dict(state.arrays)
        names = [name for name in arrays if name.startswith("class_")]
        classes = {name.removeprefix("class_"): arrays.pop(name) for name in names}
        guarantee = dict(state.facts["guarantee"])
        guarantee["epsilon"] = float("inf") if guarantee["epsilon"] is None else guarantee["epsilon"]
        released: dict[str, Any] = {**arrays, **state.facts["released"]}
        return cls.of(PublicGrid(**state.facts["grid"]), ReleasedStatistics(classes=classes, **released),
                      PublicFacts(**state.facts["public"]), Guarantee(**guarantee))  # fmt: skip


def _check_units(units: ProtectedUnits) -> None:
    if units.count < LEAST_UNITS:
        many = f"{units.count} users are" if units.users else f"{units.count} days of unknown users are"
        reason = (
            f"{'one user is' if units.users == units.count == 1 else many} too few for a privacy guarantee: "
            "only noise would be left. "
            "`twin trace anonymise` replaces the names; share the result only with people you trust"
        )
        raise TraceError("the log", reason)
