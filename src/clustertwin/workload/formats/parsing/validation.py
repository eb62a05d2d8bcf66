"""Rules that every job log must keep, whatever its format: raw columns with line numbers -> a job table and findings.

A reader gives float columns with the values of the file (nan: no value). They become the job table here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats.parsing.findings import LogFindings
from clustertwin.workload.jobs import COLUMNS, Jobs, Machine

Floats = NDArray[np.float64]
TIMES = ("wait_s", "run_s", "request_s")
COUNTS = ("nodes", "cpus", "gpus")
CODES = ("user", "group", "queue", "status")
#: Whole numbers up to here are exact in a float column; larger ones would become other numbers without a word.
EXACT = 2.0**53
#: 1,500 years; no time of a job log is longer. A date, a wait and a run time of this length still add up to a date.
LONGEST_S = 5e10


@dataclass(frozen=True, slots=True)
class RawLog:
    """A log before validation. `labels` maps our column names to the file's own, for error messages."""

    columns: dict[str, Floats]
    lines: NDArray[np.int64]
    labels: dict[str, str] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    header: tuple[str, ...] = ()
    epoch_s: float | None = None  # None: submit times are Unix timestamps; the first one becomes the epoch
    timezone: str = "UTC"
    sorted_by_contract: bool = False  # the format requires lines in the order of submission


def to_jobs(raw: RawLog, findings: LogFindings) -> tuple[Jobs, dict[str, Floats]]:
    """The job table in the order of submission, and the original values of rounded columns."""
    if len(raw.lines) == 0:
        findings.settle(lenient=False)  # the fault of a dropped line says more than "no jobs"
        raise TraceError(findings.where, "no jobs: the file is empty or has only a header")
    columns = dict(raw.columns)  # repairs change these arrays in place; the reader does not use them again
    _replace_unfit(columns, raw, findings)
    as_written = _round_counts(columns, raw, findings)
    _replace_negative(columns, raw, findings)
    _replace_unnamed(columns, raw, findings)
    keep = _has_submit(columns, raw, findings) & _first_of_its_id(columns, raw, findings)
    order = _submission_order(columns, raw, keep, findings)
    if not keep.any():
        findings.settle(lenient=False)
    chosen: dict[str, Any] = {name: _fill_unknown(values[order]) for name, values in columns.items()}
    epoch_s = raw.epoch_s if raw.epoch_s is not None else float(np.floor(chosen["submit_s"][0]))
    if raw.epoch_s is None:
        chosen["submit_s"] = chosen["submit_s"] - epoch_s
    jobs = Jobs.build(
        **{name: values for name, values in chosen.items() if name in COLUMNS},
        epoch_s=epoch_s, machine=raw.machine, names=raw.names, header=raw.header, timezone=raw.timezone,
    )  # fmt: skip
    return jobs, {name: values[order] for name, values in as_written.items()}


def _fill_unknown(values: Floats) -> Floats:
    missing = np.isnan(values)
    return np.where(missing, -1.0, values) if missing.any() else values


def _label(raw: RawLog, name: str) -> str:
    return raw.labels.get(name, name)


def _replace_unfit(columns: dict[str, Floats], raw: RawLog, findings: LogFindings) -> None:
    """Numbers that no column can hold: a job gets another number, other values become unknown."""
    bounds = dict.fromkeys((*COUNTS, *CODES, "id"), EXACT) | dict.fromkeys(("submit_s", *TIMES), LONGEST_S)
    for name, bound in bounds.items():
        values = columns.get(name)
        if values is None:
            continue
        huge = np.abs(values) >= bound
        broken = (np.modf(values)[0] != 0) & ~np.isnan(values) & (name in (*CODES, "id"))
        unfit = np.flatnonzero(huge | broken)
        if len(unfit) == 0:
            continue
        remedy = "numbered after the others" if name == "id" else "treated as unknown"
        for i in unfit:
            why = "too large" if huge[i] else "not a whole number"
            findings.repair(int(raw.lines[i]), f"{_label(raw, name)} {values[i]:g} is {why}", remedy)
        values[unfit] = np.nan
        if name == "id":
            known = values[np.isfinite(values)]
            values[unfit] = max(float(known.max()) if len(known) else 0.0, 0.0) + 1 + np.arange(len(unfit))


def _round_counts(columns: dict[str, Floats], raw: RawLog, findings: LogFindings) -> dict[str, Floats]:
    """Round fractional node, cpu and gpu counts, nodes and cpus to at least 1. Every such line is a fault."""
    as_written = {}
    for name in COUNTS:
        values = columns.get(name)
        if values is None:
            continue
        fractional = np.flatnonzero(np.isfinite(values) & (values % 1 != 0))
        if len(fractional) == 0:
            continue
        as_written[name] = values.copy()
        for i in fractional:
            findings.repair(int(raw.lines[i]), f"{_label(raw, name)} {values[i]:g} is not a whole number", "rounded")
        low = 0 if name == "gpus" else 1
        rounded = np.maximum(low, np.floor(values[fractional] + 0.5))
        values[fractional] = np.where(values[fractional] > 0, rounded, values[fractional])
    return as_written


def _replace_negative(columns: dict[str, Floats], raw: RawLog, findings: LogFindings) -> None:
    for name in (*TIMES, *COUNTS):
        values = columns.get(name)
        if values is None:
            continue
        for i in np.flatnonzero((values < 0) & (values != -1)):
            reason = f"{_label(raw, name)} {values[i]:g} is negative; only -1 (unknown) is allowed"
            findings.repair(int(raw.lines[i]), reason, "treated as unknown")
            values[i] = -1


def _replace_unnamed(columns: dict[str, Floats], raw: RawLog, findings: LogFindings) -> None:
    """Codes beyond the names of a log that has names."""
    for name, words in raw.names.items():
        values = columns.get(name, np.empty(0))
        for i in np.flatnonzero(values >= len(words)):
            reason = f"{_label(raw, name)} {values[i]:.0f} has no name; the log names {len(words)}"
            findings.repair(int(raw.lines[i]), reason, "treated as unknown")
            values[i] = np.nan


def _has_submit(columns: dict[str, Floats], raw: RawLog, findings: LogFindings) -> NDArray[np.bool_]:
    submit = columns["submit_s"]
    bad = ~np.isfinite(submit) | (submit < 0)
    for i in np.flatnonzero(bad):
        problem = "is missing" if np.isnan(submit[i]) else f"{submit[i]:g} is negative"
        findings.drop(int(raw.lines[i]), f"{_label(raw, 'submit_s')} {problem}; the job cannot be placed in time")
    return ~bad


def _first_of_its_id(columns: dict[str, Floats], raw: RawLog, findings: LogFindings) -> NDArray[np.bool_]:
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
        findings.drop(int(raw.lines[i]), f"{_label(raw, 'id')} {ids[i]:.0f} already appears on line {earlier}")
    return keep


def _submission_order(
    columns: dict[str, Floats], raw: RawLog, keep: NDArray[np.bool_], findings: LogFindings
) -> NDArray[np.intp] | slice:
    """The kept rows by submit time; rows with equal times keep the order of the file."""
    kept = np.flatnonzero(keep)
    submit = columns["submit_s"][kept]
    if raw.sorted_by_contract:
        latest = np.maximum.accumulate(submit)
        for i in np.flatnonzero(submit < latest):
            line, label = int(raw.lines[kept[i]]), _label(raw, "submit_s")
            reason = f"{label} {submit[i]:.15g} is out of order: an earlier line has {latest[i]:.15g}"
            findings.repair(line, reason, "sorted by submit time")
    if len(kept) == len(keep) and np.all(submit[1:] >= submit[:-1]):
        return slice(None)  # already in order: a large log is not copied
    return kept[np.argsort(submit, kind="stable")]
