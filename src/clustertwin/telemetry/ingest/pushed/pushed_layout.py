"""The series that a node pushes -> where its counters, channels and jobs are among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import JOB
from clustertwin.core.formatting import visible
from clustertwin.telemetry.ingest.counters import JobCpus, short_name
from clustertwin.telemetry.ingest.dialects import DIALECTS, Dialect, jobs_of, thread_number
from clustertwin.telemetry.ingest.exposition_parser import MetricSample
from clustertwin.telemetry.ingest.metrics_page import MOST_JOBS, PageLayout, layout_in
from clustertwin.telemetry.ingest.node_channels import OperandSlots, selectors

#: Job -> the user id of its owner; our exporter has it.
OWNER_METRIC = "twin_job_owner_uid"


def _metrics(dialect: Dialect) -> set[str]:
    chosen = selectors(dialect.name) + selectors(dialect.name, JOB)
    own = {dialect.cpu, dialect.info, dialect.job_cpu} - {""}
    return own | {selector.metric for operand in chosen for selector in operand}


#: metric -> the dialect that has it.
DIALECT_OF: dict[str, Dialect] = {
    metric: dialect for dialect in DIALECTS.values() for metric in sorted(_metrics(dialect))
} | {OWNER_METRIC: DIALECTS["twin"]}


@dataclass(frozen=True, slots=True)
class PushedLayout:
    """Where the series that we read are among the columns of a node. It changes with the columns."""

    page: PageLayout  # without jobs
    allocated: NDArray[np.intp]  # the columns that give a thread to a job
    of_allocated: tuple[tuple[str, int], ...]  # job and thread of the same columns
    operands: dict[str, OperandSlots]  # by job

    def jobs(self, values: NDArray[np.float64], last: tuple[bytes, tuple[JobCpus, ...]]) -> tuple[JobCpus, ...]:
        """The jobs at one instant; the same object as the last ones if nothing has changed."""
        is_allocated = values[self.allocated] > 0
        if is_allocated.tobytes() == last[0]:
            return last[1]
        return jobs_of(pair for pair, has in zip(self.of_allocated, is_allocated.tolist(), strict=True) if has)


def layout_of(columns: Sequence[tuple[str, dict[str, str]]], dialect: Dialect) -> PushedLayout:
    """The layout of a node's columns; `ValueError` if a label is not what it should be."""
    of_job: dict[str, dict[int, tuple[str, dict[str, str]]]] = {}
    allocated, of_allocated, of_node = [], [], []
    for place, (name, labels) in enumerate(columns):
        if name == dialect.job_cpu and labels.get("jobid"):
            allocated.append(place)
            of_allocated.append((short_name(labels.get("jobid", ""), "job"), thread_number(labels)))
        if labels.get("jobid"):
            of_job.setdefault(labels["jobid"], {})[place] = name, labels
        else:
            of_node.append(place)
    jobs = {job for job, _ in of_allocated}
    if len(jobs) > MOST_JOBS:
        raise ValueError(f"{len(jobs)} jobs; the limit is {MOST_JOBS}")
    page = layout_in(tuple(MetricSample(*columns[place], np.nan) for place in of_node), dialect)
    places = np.array([*of_node, -1], np.intp)  # the last one reads NaN
    return PushedLayout(
        replace(page, seconds=places[page.seconds], operands=page.operands.moved(places)),
        np.array(allocated, np.intp),
        tuple(of_allocated),
        {
            visible(job): OperandSlots(list(found.values()), dialect.name, JOB, list(found))
            for job, found in of_job.items()
            if visible(job) in jobs
        },
    )
