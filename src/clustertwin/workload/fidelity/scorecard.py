"""A real and a synthetic log -> a scorecard with every measure of fidelity, next to the real value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from clustertwin.core.errors import TraceError
from clustertwin.core.tables import ColumnTable
from clustertwin.workload.fidelity.measures.arrivals import ArrivalComparison, arrivals
from clustertwin.workload.fidelity.measures.c2st import C2st, c2st
from clustertwin.workload.fidelity.measures.compared_log import ComparedLog, compared, with_nodes
from clustertwin.workload.fidelity.measures.concurrency import ConcurrencyComparison, compare_concurrency
from clustertwin.workload.fidelity.measures.correlation import Correlation, correlation
from clustertwin.workload.fidelity.measures.judged_sample import JudgedSample
from clustertwin.workload.fidelity.measures.marginals import Marginal, marginals
from clustertwin.workload.fidelity.measures.offered_load import Capacity, LoadComparison, capacity, load
from clustertwin.workload.fidelity.measures.privacy import Privacy, privacy
from clustertwin.workload.fidelity.measures.scheduling_effect import ScheduleComparison, compare_schedules
from clustertwin.workload.fidelity.measures.user_behaviour import UserComparison, users
from clustertwin.workload.fidelity.measures.validity import Validity, validity
from clustertwin.workload.fidelity.yardsticks import yardsticks
from clustertwin.workload.formats import ParsedLog
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.privacy import Attacks, attack

LEAST_JOBS = 32
#: The parts of a comparison, in the order in which they are computed.
PARTS = ("distributions", "classifiers", "closest records", "simulated schedules", "attacks")


@dataclass(frozen=True, slots=True, repr=False)
class Scorecard(ColumnTable):
    """The result of one comparison. Each record holds the real and the synthetic values."""

    name: str
    jobs: int
    columns: tuple[str, ...]
    marginals: dict[str, Marginal]
    correlation: Correlation
    arrivals: ArrivalComparison
    load: LoadComparison
    users: UserComparison
    validity: Validity
    c2st: C2st
    privacy: Privacy
    scheduler: dict[str, ScheduleComparison]
    machine: Capacity
    attacks: Attacks
    concurrency: ConcurrencyComparison
    sample: JudgedSample  # how many jobs the costly measures looked at

    def table(self) -> dict[str, Any]:
        """A row for each measure that is a number, such as `load.ratio`, and its value."""
        rows = list(_numbers(self.document()))
        return {"measure": np.array([name for name, _ in rows]), "value": np.array([value for _, value in rows])}

    def caption(self) -> str:
        return f"{self.name}: {self.jobs:,} jobs"

    def document(self) -> dict[str, Any]:
        """The scorecard as plain values for JSON."""
        return {**asdict(self), "load": {**asdict(self.load), "ratio": self.load.ratio}}


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of nested records, with dotted names."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)


def scorecard(
    real: ComparedLog | ParsedLog | Jobs,
    synthetic: ComparedLog | ParsedLog | Jobs,
    name: str = "",
    procs: int | None = None,
    seed: int = 0,
    begin: Callable[[str], None] = lambda part: None,
) -> Scorecard:
    """Compare two logs on a machine of `procs` (default: the size that the real log states, or its largest job).

    `begin` is called before each of `PARTS`.
    """
    a, b = ComparedLog.of(real, "real"), ComparedLog.of(synthetic, name)
    for log in (a, b):
        if len(log) < LEAST_JOBS:
            raise TraceError(log.name or "a log", f"{len(log)} jobs are too few; a comparison needs {LEAST_JOBS}")
    b = with_nodes(b, a)
    names, on = compared(a, b), capacity(a.jobs, procs)
    if on.unit == "nodes" and not np.any(b.jobs.nodes > 0):
        reason = "the real log counts nodes, but no job of this log has a node count; write it as .csv or .parquet"
        raise TraceError(b.name, reason)
    if not names:
        raise TraceError(a.name, "all jobs are equal: no column varies, so there is nothing to compare")
    begin(PARTS[0])
    distributions = marginals(a, b, names), correlation(a, b, names), arrivals(a, b)
    population = load(a, b, on), users(a, b), validity(a, b, on)
    begin(PARTS[1])
    separated = c2st(a, b, names, seed)
    begin(PARTS[2])
    nearness = privacy(a, b, names, seed)
    begin(PARTS[3])
    schedules = compare_schedules(a, b, on)
    begin(PARTS[4])
    attacks = attack(a.jobs, b.jobs, seed)
    return Scorecard(
        name or b.name, len(b), names, *distributions, *population, separated, nearness, schedules, on, attacks,
        compare_concurrency(a, b, on), JudgedSample.of(len(a), len(b)),
    )  # fmt: skip


def compare(
    real: ComparedLog,
    synthetic: Iterable[ComparedLog],
    procs: int | None = None,
    seed: int = 0,
    show: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> tuple[Scorecard, ...]:
    """The yardsticks first, then every synthetic log, on the machine of the real log.

    `show` is called before each part with its name, the parts that are done, and their number.
    """
    if len(real) < 2 * LEAST_JOBS:
        reason = f"{len(real)} jobs are too few; a comparison also needs two halves of {LEAST_JOBS} real jobs"
        raise TraceError(real.name or "the real log", reason)
    on = capacity(real.jobs, procs)
    pairs = [(pair.name, pair.real, pair.synthetic) for pair in yardsticks(real, np.random.default_rng(seed))]
    pairs += [(log.name, real, log) for log in synthetic]
    cards: list[Scorecard] = []
    for name, left, right in pairs:
        before, total = len(PARTS) * len(cards), len(PARTS) * len(pairs)

        def begin(part: str, name: str = name, before: int = before, total: int = total) -> None:
            show(f"comparing: {name}", before + PARTS.index(part), total)

        cards.append(scorecard(left, right, name, on.procs, seed, begin))
    return tuple(cards)
