"""A change to a workload: more load, another machine, other users, sizes or dates -> a rate factor for each job.

Every factor is a rate: `load=1.3` gives 1.3 times the work per day, and `users={"7": 2}` lets user 7 submit twice as
many jobs. `machine` gives a machine of another size the same utilisation: all users submit more or fewer jobs, and a
job that does not fit is reduced to the size of the machine. No factor adds users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_sizes, machine_size

Floats = NDArray[np.float64]

LARGEST_SIZE = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """The default changes nothing."""

    load: float = 1.0
    machine: int | None = None  # nodes; cpus if the log does not count nodes
    users: Mapping[str, float] = field(default_factory=dict)  # user name or code -> factor
    sizes: Mapping[str, float] = field(default_factory=dict)  # "8", "9-64" or "65-" -> factor
    start_s: float | None = None  # the first day, in seconds since 1970
    days: float | None = None  # the length of the log, instead of a number of jobs

    def __post_init__(self) -> None:
        for name, value in (("load", self.load), ("machine size", self.machine), ("number of days", self.days)):
            if value is not None and not (value > 0 and np.isfinite(value)):
                raise SettingsError(f"the {name} is {value:g}; it must be above zero")
        for factor in (*self.users.values(), *self.sizes.values()):
            if not (factor >= 0 and np.isfinite(factor)):
                raise SettingsError(f"a factor is {factor:g}; it must be zero or more")
        _refuse_overlap(self.sizes)


@dataclass(frozen=True, slots=True)
class ModelledLog:
    """What a fitted generator knows about its log. A change that needs an unknown fact is refused."""

    machine_size: int | None = None
    users: frozenset[int] = frozenset()  # the user codes that it generates; empty: it does not model users
    user_names: tuple[str, ...] = ()  # the name of each code, if users have names

    @classmethod
    def of(cls, jobs: Jobs) -> ModelledLog:
        users = frozenset(np.unique(jobs.user).tolist())
        return cls(machine_size(jobs), users, jobs.names.get("user", ()))

    def user_code(self, name: str) -> int:
        """The code of a user given by name or by code."""
        if not self.users:
            raise SettingsError(
                f"this generator does not model users, so the factor of user {name!r} cannot be applied"
            )
        code: int | None = None
        if name in self.user_names:
            code = self.user_names.index(name)
        elif name.removeprefix("-").isdigit():
            code = int(name)
        if code is None or code not in self.users:
            raise SettingsError(f"the log has no user {name!r}")
        return code


def check_count(n: int) -> None:
    if n < 1:
        raise SettingsError(f"{n} jobs cannot be generated; ask for one or more")


def check_length(n: int | None, change: WorkloadChange) -> None:
    """A log ends after n jobs or after `change.days`; one of them is needed."""
    if n is not None:
        check_count(n)
    elif change.days is None:
        raise SettingsError("give a number of jobs or a number of days")


def size_range(text: str) -> tuple[int, int]:
    """The smallest and the largest size of a range.

    >>> size_range("9-64"), size_range("8")
    ((9, 64), (8, 8))
    """
    low, dash, high = text.partition("-")
    try:
        smallest = int(low)
        largest = int(high) if high else LARGEST_SIZE if dash else smallest
    except ValueError as error:
        raise SettingsError(f"{text!r} is not a range of sizes; write 8, 9-64 or 65-") from error
    if smallest > largest:
        raise SettingsError(f"the range of sizes {text!r} is empty: {smallest} is larger than {largest}")
    return smallest, largest


def _refuse_overlap(sizes: Mapping[str, float]) -> None:
    """Two ranges that share a size contradict each other, unless their factors are equal."""
    ranges = sorted((*size_range(text), factor, text) for text, factor in sizes.items())
    for (_, end, factor, text), (begin, _, other_factor, other) in pairwise(ranges):
        if begin <= end and factor != other_factor:
            raise SettingsError(f"the ranges of sizes {text!r} and {other!r} overlap with different factors")


def refuse_unused_sizes(size: NDArray[np.int64], change: WorkloadChange) -> None:
    """Refuse a range without a job: its factor would do nothing."""
    for text in change.sizes:
        smallest, largest = size_range(text)
        if not np.any((size >= smallest) & (size <= largest)):
            raise SettingsError(f"no job of the log has a size in {text!r}, so its factor would change nothing")


def user_factors(user: NDArray[np.int64], change: WorkloadChange, log: ModelledLog) -> Floats:
    """(job,) the factor of each job's user."""
    factors = np.ones(len(user))
    for name, factor in change.users.items():
        factors[user == log.user_code(name)] = factor
    return factors


def size_factors(size: NDArray[np.int64], change: WorkloadChange) -> Floats:
    """(job,) the factor of each job's size."""
    factors = np.ones(len(size))
    for text, factor in change.sizes.items():
        smallest, largest = size_range(text)
        factors[(size >= smallest) & (size <= largest)] = factor
    return factors


def machine_factor(jobs: Jobs, log_machine: int, machine: int | None) -> float:
    """The rate that gives a machine of this size the utilisation of the log's machine.

    It makes up for the work that is lost where jobs are reduced to the size of the machine.
    """
    if machine is None:
        return 1.0
    size = counted_sizes(jobs)
    reduced = np.minimum(size, machine)
    lost = float((size * jobs.run_s).sum() / max((reduced * jobs.run_s).sum(), 1e-9))
    return machine / log_machine * lost


def even_counts(factors: Floats, work: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """How often to draw each item: `factors` on average, spread evenly over the items in the order of their work.

    Systematic sampling keeps the total work close to its expected share. With independent draws, a few very large jobs
    would decide it.
    """
    order = np.argsort(work, kind="stable")
    edges = np.floor(np.cumsum(factors[order]) + rng.random()).astype(np.int64)
    counts = np.empty(len(factors), dtype=np.int64)
    counts[order] = np.diff(edges, prepend=0)
    return counts


def fit_to_machine(jobs: Jobs, machine: int) -> Jobs:
    """Reduce jobs that are too large to the size of the machine. Cpus and gpus per node stay the same."""
    size = counted_sizes(jobs)
    reduced = np.minimum(size, machine)
    columns: dict[str, Any] = {
        name: np.where(column > 0, np.maximum(column * reduced // size, 1), column)
        for name, column in (("nodes", jobs.nodes), ("cpus", jobs.cpus), ("gpus", jobs.gpus))
    }
    per_node = 1 if np.any(jobs.nodes > 0) else max(1, jobs.machine.cpus_per_node)
    return replace(jobs, **columns, machine=replace(jobs.machine, nodes=-(-machine // per_node)))
