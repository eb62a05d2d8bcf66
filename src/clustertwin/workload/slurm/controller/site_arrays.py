"""The tables that the compiled loops of the controller take: a site and its jobs as numpy arrays."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

#: Kinds of dependency.
AFTER, AFTERANY, AFTEROK, AFTERNOTOK = range(4)
#: The first TRES of a limit row; GRES follow, and the last column counts jobs.
CPU, MEMORY, NODE, FIRST_GRES = range(4)
CANCEL, REQUEUE, SUSPEND = range(1, 4)


def _table(**kinds: str) -> np.dtype[np.void]:
    return np.dtype([(name, {"i": np.int64, "f": np.float64}[kind]) for name, kind in kinds.items()])


#: What a job asks for depends on the partition, which has defaults and limits.
BY_PARTITION: dict[str, str] = {
    "limit_s": "f", "nodes_min": "i", "nodes_max": "i", "nodes_wanted": "i", "tasks_on_node": "i", "cpus_on_node": "i",
    "memory_node_mb": "f", "memory_cpu_mb": "f", "exclusive": "i", "required": "i", "forced": "i", "cpus": "i",
    "cpus_per_task": "i",
}  # fmt: skip
#: Rows are structured arrays: the compiled loops pass few arrays, and read `jobs.limit_s[j]`.
NODES = _table(cores="i", threads="i", memory_mb="f", weight="i", leaf="i", up="i")
JOBS = _table(
    submit_s="f", begin_s="f", cancel_s="f", run_s="f", user="i", association="i", qos="i", array="i", reservation="i",
    succeeds="i", requeue="i", billing="f", entry_from="i", entry_to="i", link_from="i", link_to="i", place_from="i",
    place_to="i", submit_from="i", submit_to="i", **BY_PARTITION,
)  # fmt: skip
#: A job in one partition; `priority` lacks age and fair share. Entries of one kind ask for the same.
ENTRIES = _table(
    job="i", partition="i", mask="i", kind="i", priority="f", limit_from="i", limit_to="i", **BY_PARTITION
)  # fmt: skip
PARTITIONS = _table(tier="i", schedules="i", preempt_mode="i", least_loaded="i")
SHARES = _table(parent="i", shares="f", level_shares="f", is_user="i", uses_parent="i", child_from="i", child_to="i")
TUNING = _table(
    backfill="i", batch_sched_delay="f", sched_interval="f", queue_depth="i", assoc_limit_stop="i",
    bf_interval="f", bf_resolution="f", bf_window="f", bf_max_job_test="i", bf_max_job_user="i", bf_max_job_part="i",
    bf_max_job_start="i", bf_max_job_array_resv="i", bf_min_age_reserve="f", bf_min_prio_reserve="f",
    bf_node_space_size="i", bf_window_linear="f", weight_age="f", max_age_s="f", weight_fair_share="f",
    decay_per_s="f", calc_period_s="f", fair_tree="i", dampening="f", accrue_always="i", increase_only="i",
    preempt="i", youngest_first="i", over_time_s="f", requeue_delay_s="f", bf_phase_s="f",
)  # fmt: skip

Rows = NDArray[np.void]


class SiteArrays(NamedTuple):
    """Nodes stand in the order of their names, as in slurmctld; the root of the account tree is association 0."""

    nodes: Rows
    node_gres: Ints  # (node, gres)
    leaf_distance: Ints  # (leaf switch, leaf switch)
    jobs: Rows
    job_gres: Ints  # (job, gres), on each node
    job_tres: Floats  # (job, tres + 1), what limits count; the last column is 1, for the job itself
    entries: Rows
    pairs: Ints  # (pair, 2): a counter that a start adds to, and the limit row that applies
    limit_rows: Floats  # (row, tres + 1)
    partitions: Rows
    partition_nodes: Bytes  # (partition, node)
    reservation_s: Floats  # (reservation, 2): start and end
    reservation_nodes: Bytes  # (reservation, node)
    shares: Rows
    children: Ints
    masks: Bytes  # (mask, node)
    links: Ints  # (link, 2): kind of dependency, other job
    submits: Floats  # (limit, 2): counter, most jobs
    qos_preempts: Bytes  # (preemptor, preempted)
    qos_mode: Ints
    qos_priority: Ints
    tuning: Rows  # one row
    counters: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Arrays, the jobs in them (rows of the log), and why the others are left out."""

    arrays: SiteArrays
    rows: Ints
    refused: dict[int, str]  # row of the log -> reason
    node_names: tuple[str, ...]
    remarks: Counter[str] = field(default_factory=Counter)


def matrix(rows: Any, width: int, kind: Any) -> NDArray[Any]:
    return np.array(rows, kind).reshape(len(rows), width)


def set_ranges(table: Rows, name: str, counts: list[int]) -> None:
    """Consecutive ranges of these lengths, as columns `name_from` and `name_to`."""
    ends = np.cumsum(counts, dtype=np.int64) if counts else np.zeros(0, np.int64)
    table[f"{name}_to"] = ends
    table[f"{name}_from"] = ends - np.array(counts, np.int64)


class Refused(Exception):
    """Slurm refuses the job; the text is the reason."""


class RefusedEverywhere(Refused):
    """One partition of several that a job names is enough to refuse it."""
