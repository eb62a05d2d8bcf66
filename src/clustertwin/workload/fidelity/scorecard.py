"""A real and a synthetic log -> a scorecard: every measure of fidelity, side by side with the real value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from clustertwin.core.errors import TraceError
from clustertwin.workload.fidelity.arrivals import Arrivals, arrivals
from clustertwin.workload.fidelity.c2st import C2st, c2st
from clustertwin.workload.fidelity.correlation import Correlation, correlation
from clustertwin.workload.fidelity.load import Capacity, Load, capacity, load
from clustertwin.workload.fidelity.marginals import Marginal, marginals
from clustertwin.workload.fidelity.privacy import Privacy, privacy
from clustertwin.workload.fidelity.sample import Sample, compared, in_nodes_too
from clustertwin.workload.fidelity.scheduler import Under, scheduler
from clustertwin.workload.fidelity.users import Users, users
from clustertwin.workload.fidelity.validity import Validity, validity
from clustertwin.workload.fidelity.yardsticks import yardsticks
from clustertwin.workload.formats import Reading
from clustertwin.workload.jobs import Jobs

LEAST_JOBS = 32


@dataclass(frozen=True, slots=True)
class Scorecard:
    """One comparison; real values stand in the same records as the synthetic ones."""

    name: str
    jobs: int
    columns: tuple[str, ...]
    marginals: dict[str, Marginal]
    correlation: Correlation
    arrivals: Arrivals
    load: Load
    users: Users
    validity: Validity
    c2st: C2st
    privacy: Privacy
    scheduler: dict[str, Under]
    machine: Capacity

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "load": {**asdict(self.load), "ratio": self.load.ratio}}


def scorecard(
    real: Sample | Reading | Jobs,
    synthetic: Sample | Reading | Jobs,
    name: str = "",
    procs: int | None = None,
    seed: int = 0,
) -> Scorecard:
    """Compare two logs on a machine of `procs` (default: what the real log says of its machine, or its largest job)."""
    a, b = Sample.of(real, "real"), Sample.of(synthetic, name)
    for sample in (a, b):
        if len(sample) < LEAST_JOBS:
            raise TraceError(
                sample.name or "a log", f"{len(sample)} jobs are too few to compare, {LEAST_JOBS} are needed"
            )
    b = in_nodes_too(b, a)
    names, on = compared(a, b), capacity(a.jobs, procs)
    if on.unit == "nodes" and not np.any(b.jobs.nodes > 0):
        raise TraceError(b.name, "no job says how many nodes it takes, as those of the real log do; write it as .csv")
    if not names:
        raise TraceError(a.name, "all jobs are alike: no column varies, so there is nothing to compare")
    return Scorecard(
        name or b.name, len(b), names, marginals(a, b, names), correlation(a, b, names), arrivals(a, b), load(a, b, on),
        users(a, b), validity(a, b, on), c2st(a, b, names, seed), privacy(a, b, names), scheduler(a, b, on), on,
    )  # fmt: skip


def compare(
    real: Sample,
    synthetic: Iterable[Sample],
    procs: int | None = None,
    seed: int = 0,
    done: Callable[[str], None] = lambda name: None,
) -> tuple[Scorecard, ...]:
    """The yardsticks first, then every synthetic log, on the real log's machine; `done` hears of each."""
    on = capacity(real.jobs, procs)
    pairs = [(pair.name, pair.real, pair.synthetic) for pair in yardsticks(real, np.random.default_rng(seed))]
    pairs += [(sample.name, real, sample) for sample in synthetic]
    cards = []
    for name, left, right in pairs:
        cards.append(scorecard(left, right, name, on.procs, seed))
        done(name)
    return tuple(cards)
