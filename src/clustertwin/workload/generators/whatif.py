"""Questions to a log: more load, another machine, other users or sizes, other dates -> how often each job is drawn.

Every factor is a rate: `load=1.3` offers 1.3 times the work a day, `users={"7": 2}` has user 7 submit twice the jobs.
A machine of other size has more or fewer users, so that it is as loaded as the old one; jobs that would not fit ask for
all of it. To put the same jobs on another machine, schedule them there instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.generators.contract import sizes
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import machine_size

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Nothing changed by default."""

    load: float = 1.0
    machine: int | None = None  # nodes (cpus, where the log counts no nodes)
    users: Mapping[str, float] = field(default_factory=dict)  # name or code -> factor
    sizes: Mapping[str, float] = field(default_factory=dict)  # "8", "9-64" or "65-" -> factor
    start_s: float | None = None  # the first day, seconds since 1970
    days: float | None = None  # how long; the number of jobs then follows

    def __post_init__(self) -> None:
        for name, value in (("load", self.load), ("machine", self.machine), ("days", self.days)):
            if value is not None and not value > 0:
                raise SettingsError(f"{name} {value:g} makes no sense; it has to be above zero")
        for factor in (*self.users.values(), *self.sizes.values()):
            if not (factor >= 0 and np.isfinite(factor)):
                raise SettingsError(f"a factor of {factor:g} makes no sense; it has to be zero or more")


def user_factors(jobs: Jobs, users: Mapping[str, float]) -> Floats:
    """(job,) how much more often each job's user submits."""
    words = {word: code for code, word in enumerate(jobs.names.get("user", ()))}
    factors = np.ones(len(jobs))
    for name, factor in users.items():
        code = words.get(name, int(name) if name.lstrip("-").isdigit() else None)
        mine = jobs.user == code if code is not None else np.zeros(len(jobs), bool)
        if not mine.any():
            raise SettingsError(f"the log has no user {name!r}")
        factors[mine] = factor
    return factors


def size_factors(jobs: Jobs, wanted: Mapping[str, float]) -> Floats:
    """(job,) how much more often jobs of its size are submitted."""
    size, factors = sizes(jobs), np.ones(len(jobs))
    for text, factor in wanted.items():
        low, dash, high = text.partition("-")
        try:
            least, most = int(low), int(high) if high else (np.iinfo(np.int64).max if dash else int(low))
        except ValueError as error:
            raise SettingsError(f"{text!r} is no range of sizes; write 8, 9-64 or 65-") from error
        factors[(size >= least) & (size <= most)] = factor
    return factors


def machine_factor(jobs: Jobs, machine: int | None) -> float:
    """How many more sessions keep a machine of this size as busy as the log's own."""
    if machine is None:
        return 1.0
    size = sizes(jobs)
    fits = np.minimum(size, machine)
    return machine / machine_size(jobs) * float((size * jobs.run_s).sum() / max((fits * jobs.run_s).sum(), 1e-9))


def counts(factors: Floats, by: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """How often to draw each item: `factors` on average, and as evenly as can be over the items sorted by `by`.

    Even draws keep the work of a thinned log near its share; independent ones would let a few huge jobs decide it.
    """
    order = np.argsort(by, kind="stable")
    edges = np.floor(np.cumsum(factors[order]) + rng.random()).astype(np.int64)
    drawn = np.empty(len(factors), dtype=np.int64)
    drawn[order] = np.diff(edges, prepend=0)
    return drawn
