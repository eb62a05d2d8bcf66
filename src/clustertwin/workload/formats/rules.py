"""The rules every job log obeys, whatever its format: raw columns with line numbers -> a job table and what was found.

A reader gives float columns as the file has them (nan: no value); here they become the job table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats.reading import Findings
from clustertwin.workload.jobs import COLUMNS, Jobs, Machine

Floats = NDArray[np.float64]
TIMES = ("wait_s", "run_s", "request_s")
COUNTS = ("nodes", "cpus", "gpus")


@dataclass(frozen=True, slots=True)
class Raw:
    """A log before the rules. `labels` are the file's own names of columns, for messages a user can look up."""

    columns: dict[str, Floats]
    lines: NDArray[np.int64]
    labels: dict[str, str] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    header: tuple[str, ...] = ()
    epoch_s: float | None = None  # None: submit times are dates, count from the first
    timezone: str = "UTC"
    sorted_by_contract: bool = False  # the format promises lines in the order of submission


def to_jobs(raw: Raw, findings: Findings) -> tuple[Jobs, dict[str, Floats]]:
    """The job table in the order of submission, and the columns that had to be rounded, as written."""
    if len(raw.lines) == 0:
        findings.settle(lenient=False)  # what was wrong with every line says more
        raise TraceError(findings.where, "no jobs: the file is empty but for its header")
    columns = dict(raw.columns)  # the arrays are the reader's to give, and are mended in place
    as_written = _round_counts(columns, raw, findings)
    _refuse_negative(columns, raw, findings)
    keep = _has_submit(columns, raw, findings) & _first_of_its_id(columns, raw, findings)
    order = _in_order(columns, raw, keep, findings)
    if not keep.any():
        findings.settle(lenient=False)
    chosen: dict[str, Any] = {name: _unknown(values[order]) for name, values in columns.items()}
    epoch_s = raw.epoch_s if raw.epoch_s is not None else float(np.floor(chosen["submit_s"][0]))
    if raw.epoch_s is None:
        chosen["submit_s"] = chosen["submit_s"] - epoch_s
    jobs = Jobs.build(
        **{name: values for name, values in chosen.items() if name in COLUMNS},
        epoch_s=epoch_s, machine=raw.machine, names=raw.names, header=raw.header, timezone=raw.timezone,
    )  # fmt: skip
    return jobs, {name: values[order] for name, values in as_written.items()}


def _unknown(values: Floats) -> Floats:
    missing = np.isnan(values)
    return np.where(missing, -1.0, values) if missing.any() else values


def _label(raw: Raw, name: str) -> str:
    return raw.labels.get(name, name)


def _round_counts(columns: dict[str, Floats], raw: Raw, findings: Findings) -> dict[str, Floats]:
    """Half a node does not exist: rounded, at least to 1, and every such line is a fault."""
    as_written = {}
    for name in COUNTS:
        values = columns.get(name)
        if values is None:
            continue
        broken = np.flatnonzero(np.isfinite(values) & (values % 1 != 0))
        if len(broken) == 0:
            continue
        as_written[name] = values.copy()
        for i in broken:
            findings.repair(int(raw.lines[i]), f"{_label(raw, name)} {values[i]:g} is not a whole number", "rounded")
        low = 0 if name == "gpus" else 1
        values[broken] = np.where(values[broken] > 0, np.maximum(low, np.floor(values[broken] + 0.5)), values[broken])
    return as_written


def _refuse_negative(columns: dict[str, Floats], raw: Raw, findings: Findings) -> None:
    for name in (*TIMES, *COUNTS):
        values = columns.get(name)
        if values is None:
            continue
        for i in np.flatnonzero((values < 0) & (values != -1)):
            reason = f"{_label(raw, name)} {values[i]:g} is negative (only -1, unknown, may be)"
            findings.repair(int(raw.lines[i]), reason, "taken as unknown")
            values[i] = -1


def _has_submit(columns: dict[str, Floats], raw: Raw, findings: Findings) -> NDArray[np.bool_]:
    submit = columns["submit_s"]
    bad = ~np.isfinite(submit) | (submit < 0)
    for i in np.flatnonzero(bad):
        what = "is missing" if np.isnan(submit[i]) else f"{submit[i]:g} is negative"
        findings.drop(int(raw.lines[i]), f"{_label(raw, 'submit_s')} {what}: the job has no place in time")
    return ~bad


def _first_of_its_id(columns: dict[str, Floats], raw: Raw, findings: Findings) -> NDArray[np.bool_]:
    keep = np.ones(len(raw.lines), dtype=bool)
    ids = columns.get("id")
    if ids is None:
        return keep
    distinct, first = np.unique(ids, return_index=True)
    if len(distinct) == len(ids):
        return keep
    keep[:] = False
    keep[first] = True
    for i in np.flatnonzero(~keep):
        earlier = raw.lines[first[np.searchsorted(distinct, ids[i])]]
        findings.drop(int(raw.lines[i]), f"{_label(raw, 'id')} {ids[i]:.0f} was already on line {earlier}")
    return keep


def _in_order(
    columns: dict[str, Floats], raw: Raw, keep: NDArray[np.bool_], findings: Findings
) -> NDArray[np.intp] | slice:
    """The kept rows by submit time; ties stay as the file has them."""
    kept = np.flatnonzero(keep)
    submit = columns["submit_s"][kept]
    if raw.sorted_by_contract:
        latest = np.maximum.accumulate(submit)
        for i in np.flatnonzero(submit < latest):
            line, label = int(raw.lines[kept[i]]), _label(raw, "submit_s")
            reason = f"{label} {submit[i]:.15g} comes after {latest[i]:.15g}: out of order"
            findings.repair(line, reason, "moved to its place")
    if len(kept) == len(keep) and np.all(submit[1:] >= submit[:-1]):
        return slice(None)  # as it stands: a large log is not copied
    return kept[np.argsort(submit, kind="stable")]
