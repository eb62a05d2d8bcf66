"""Slurm's accounting report, `sacct --parsable2` <-> a job table.

    sacct --allusers --allocations --parsable2 --delimiter "|$(openssl rand -hex 8)|" --starttime 2024-01-01 --format \\
      JobIDRaw,JobID,User,Account,Partition,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,ReqCPUS,AllocCPUS,AllocNodes,ReqMem,AllocTRES

Columns are found by name, and other columns are ignored. The size of a job is what Slurm allocated, or what the job
requested if it never started. Lines of job steps are skipped, because each job has a line of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats.parsing.byte_stream import Progress
from clustertwin.workload.formats.parsing.delimited import DelimitedBatch, first_positive, header_of, read_batches
from clustertwin.workload.formats.parsing.findings import LogFindings
from clustertwin.workload.formats.parsing.local_time import LocalTimes
from clustertwin.workload.formats.parsing.sacct_pipes import MarkedLine, PipeRepair, forgeable, mark_of
from clustertwin.workload.formats.parsing.slurm_fields import (
    NEVER,
    parse_duration,
    parse_memory,
    parse_state,
    parse_tres,
)
from clustertwin.workload.formats.parsing.validation import RawLog
from clustertwin.workload.formats.parsing.word_codes import WordCodes, words_behind
from clustertwin.workload.jobs import Jobs, Status

LABELS = {"submit_s": "Submit", "id": "JobID", "run_s": "Elapsed", "wait_s": "Start - Submit"}
FAR_S = 1e12  # farther from the elapsed time than any job's end
_JOB = re.compile(r"(\d+)(?:_(\d+|\[.*\]))?(?:\+(\d+))?(\..+)?$")

Floats = NDArray[np.float64]


def read_raw(
    path: Path, findings: LogFindings, progress: Progress | None = None, timezone: str | None = None
) -> RawLog:
    """A file, plain or gzip -> raw columns, before validation. `timezone` applies to times without an offset."""
    names = header_of(path, "|")
    mark = mark_of(names)
    marks = [f"mark {place}" for place in range(len(names) // 2)] if mark else []
    names[1::2] = marks or names[1::2]
    if "Submit" not in names or not {"JobID", "JobIDRaw"} & set(names):
        reason = (
            "the columns JobID and Submit are missing; create the file with sacct --parsable2 --format=JobID,Submit,…"
        )
        raise TraceError(path, reason, 1)
    if repeated := [name for name, count in Counter(names).items() if name in _USED and count > 1]:
        raise TraceError(path, f"the column {repeated[0]} appears twice", 1)
    if not mark and (reason := forgeable(names)):
        findings.note(None, reason)
    report = _Report(findings, LocalTimes(ZoneInfo(timezone or "UTC")))
    wanted = [*(name for name in names if name in _USED), *marks]
    repair = MarkedLine(mark) if mark else PipeRepair(names, findings)
    own_names = names if mark else None
    for batch in read_batches(path, "|", wanted, findings, progress, quotes=False, repair=repair, names=own_names):
        report.add(_marked(batch, mark, marks, findings) if mark else batch)
    if timezone is None and report.times.naive:
        findings.note(None, "times are local and no time zone was given; using UTC (set it with --timezone)")
    return report.finish(timezone or "UTC")


def _marked(batch: DelimitedBatch, mark: str, marks: list[str], findings: LogFindings) -> DelimitedBatch:
    """The rows with the mark after each cell; the others are texts of users."""
    keep = np.ones(len(batch), dtype=bool)
    for name in marks:
        keep &= pc.equal(batch.words[name], mark).to_numpy(zero_copy_only=False)
    for line in batch.lines[~keep]:
        findings.drop(int(line), "not a row: the separator of the header is missing, so this is part of a user's text")
    return DelimitedBatch({name: column.filter(keep) for name, column in batch.words.items()}, batch.lines[keep])


_USED = {"JobID", "JobIDRaw", "User", "Account", "Partition", "State", "Submit", "Start", "End", "Elapsed",
         "ElapsedRaw", "Timelimit", "TimelimitRaw", "ReqCPUS", "AllocCPUS", "NCPUS", "ReqNodes", "AllocNodes", "NNodes",
         "ReqMem", "AllocTRES", "ReqTRES"}  # fmt: skip


class _Report:
    """Collects batches of lines into columns."""

    def __init__(self, findings: LogFindings, times: LocalTimes) -> None:
        self._findings, self.times = findings, times
        self._codes = {"user": WordCodes(), "group": WordCodes(), "queue": WordCodes()}
        self._parts: list[dict[str, Floats]] = []
        self._lines: list[NDArray[np.int64]] = []
        self._steps, self._plain_ids = 0, True

    def add(self, batch: DelimitedBatch) -> None:
        keep = self._jobs_only(batch)
        batch = DelimitedBatch({name: column.filter(keep) for name, column in batch.words.items()}, batch.lines[keep])
        if len(batch) == 0:
            return
        submit, start, end, run = self._times(batch)
        started = np.isfinite(start)
        wait = np.where(started, start - submit, -1.0)
        ended = np.isfinite(end)
        # The run time of a running job is unknown. A job that ended without starting has a run time of 0.
        run = np.where(ended, np.nan_to_num(run), -1.0)
        alloc, req = self._tres(batch, "AllocTRES"), self._tres(batch, "ReqTRES")
        nodes = self._amount(batch, ("AllocNodes", "NNodes"), alloc["node"], ("ReqNodes",), req["node"])
        cpus = self._amount(batch, ("AllocCPUS", "NCPUS"), alloc["cpu"], ("ReqCPUS",), req["cpu"])
        codes = {ours: self._codes[ours].encode(batch.words[theirs])
                 for ours, theirs in {"user": "User", "group": "Account", "queue": "Partition"}.items()
                 if theirs in batch.words}  # fmt: skip
        columns = {"submit_s": submit, "wait_s": wait, "run_s": run, "request_s": self._limit(batch), "nodes": nodes,
                   "cpus": cpus, "gpus": np.fmax(np.fmax(alloc["gpu"], req["gpu"]), 0),
                   "memory_bytes": self._memory(batch, nodes, cpus, req["mem"]), **codes}  # fmt: skip
        if "State" in batch.words:
            columns["status"] = batch.parsed("State", parse_state, self._findings)
        columns["id"] = self._ids(batch)
        self._parts.append(columns)
        self._lines.append(batch.lines)

    def finish(self, timezone: str) -> RawLog:
        if self._steps:
            self._findings.note(None, f"job step lines skipped: {self._steps} (each job has a line of its own)")
        columns = {name: np.concatenate([part[name] for part in self._parts]) for name in (self._parts or [{}])[0]}
        if columns and not self._plain_ids:
            del columns["id"]
            self._findings.note(None, "job arrays without the column JobIDRaw; jobs are numbered from 1")
        lines = np.concatenate(self._lines) if self._lines else np.empty(0, np.int64)
        names = {name: codes.words for name, codes in self._codes.items() if codes.words}
        return RawLog(columns, lines, LABELS, names=names, timezone=timezone)

    def _jobs_only(self, batch: DelimitedBatch) -> NDArray[np.bool_]:
        name = "JobID" if "JobID" in batch.words else "JobIDRaw"
        keep = np.ones(len(batch), dtype=bool)
        for i, word in enumerate(batch.words[name].to_pylist()):
            match = _JOB.match(word)
            line = int(batch.lines[i])
            if match is None:
                self._findings.drop(line, f"{name} is {word!r}, not a Slurm job ID")
                keep[i] = False
            elif match[4]:
                self._steps += 1
                keep[i] = False
            elif match[2] and match[2].startswith("["):
                self._findings.note(line, f"{word}: array tasks that never started share one line; kept as one job")
        return keep

    def _ids(self, batch: DelimitedBatch) -> Floats:
        name = "JobIDRaw" if "JobIDRaw" in batch.words else "JobID"
        words = batch.words[name].to_pylist()
        self._plain_ids &= all(word.isdecimal() for word in words)
        return np.array([float(word) if word.isdecimal() else -1.0 for word in words], dtype=np.float64)

    def _times(self, batch: DelimitedBatch) -> tuple[Floats, Floats, Floats, Floats]:
        """Submit, start, end and elapsed time. The elapsed time decides which of two repeated hours is meant.

        A start before the submission is not meant.
        """
        elapsed = self._elapsed(batch)
        both = {name: self.times.parse(batch, name, self._findings) for name in ("Submit", "Start", "End")
                if name in batch.words}  # fmt: skip
        nothing = np.full(len(batch), np.nan)
        starts, ends = both.get("Start", (nothing, nothing)), both.get("End", (nothing, nothing))
        combined = [(start, end) for start in starts for end in ends]
        early, late = both["Submit"]
        gaps = np.array([np.nan_to_num(np.abs(end - start - elapsed), nan=FAR_S) for start, end in combined])
        gaps += np.array([np.where(start < early, 2 * FAR_S, 0.0) for start, _ in combined])
        closest = np.argmin(gaps, axis=0)
        start = np.choose(closest, [start for start, _ in combined])
        end = np.choose(closest, [end for _, end in combined])
        submit = np.where(late <= start, late, early)
        return submit, start, end, np.where(np.isfinite(elapsed), elapsed, end - start)

    def _elapsed(self, batch: DelimitedBatch) -> Floats:
        if "ElapsedRaw" in batch.words:
            return batch.numbers("ElapsedRaw", self._findings)
        if "Elapsed" in batch.words:
            return batch.parsed("Elapsed", parse_duration, self._findings)
        return np.full(len(batch), np.nan)

    def _limit(self, batch: DelimitedBatch) -> Floats:
        """The limit in seconds; TimelimitRaw counts minutes."""
        if "Timelimit" in batch.words:
            return batch.parsed("Timelimit", parse_duration, self._findings)
        if "TimelimitRaw" in batch.words:
            return batch.parsed("TimelimitRaw", _minutes, self._findings)
        return np.full(len(batch), -1.0)

    def _tres(self, batch: DelimitedBatch, name: str) -> dict[str, Floats]:
        """cpu, node, gpu and mem (bytes) of a TRES list; nan where the list has no entry."""
        resources = {part: np.full(len(batch), np.nan) for part in ("cpu", "node", "gpu", "mem")}
        if name in batch.words:
            for part in ("cpu", "node"):
                resources[part] = batch.parsed(name, partial(_count, label=part), self._findings)
            resources["gpu"] = batch.parsed(name, _gpus, self._findings)
            resources["mem"] = batch.parsed(
                name, lambda word: parse_memory(parse_tres(word).get("mem", "")), self._findings
            )
        return resources

    def _amount(
        self, batch: DelimitedBatch, given: tuple[str, ...], alloc: Floats, asked: tuple[str, ...], req: Floats
    ) -> Floats:
        """The allocated amount where it is known, else the requested one."""
        sources = [batch.numbers(name, self._findings) for name in given if name in batch.words]
        sources += [alloc, *(batch.numbers(name, self._findings) for name in asked if name in batch.words), req]
        return first_positive(*sources)

    def _memory(self, batch: DelimitedBatch, nodes: Floats, cpus: Floats, tres: Floats) -> Floats:
        """ReqMem, which older releases gave per cpu or per node; without it, the memory of ReqTRES."""
        if "ReqMem" not in batch.words:
            return np.where(tres > 0, tres, -1.0)
        of_node = batch.parsed("ReqMem", lambda word: float(word.endswith("n")), self._findings) == 1
        of_cpu = batch.parsed("ReqMem", lambda word: float(word.endswith("c")), self._findings) == 1
        share = batch.parsed("ReqMem", parse_memory, self._findings)
        shares = np.where(of_node, np.maximum(nodes, 1), np.where(of_cpu, np.maximum(cpus, 1), 1))
        return np.where(share > 0, share * shares, -1.0)


def _count(word: str, label: str) -> float:
    return float(parse_tres(word).get(label, "nan"))


def _gpus(word: str) -> float:
    """All GPUs; without their sum, as where a site counts each type only, the types are added up."""
    tres = parse_tres(word)
    if "gres/gpu" in tres:
        return float(tres["gres/gpu"])
    types = [float(count) for name, count in tres.items() if name.startswith("gres/gpu:")]
    return sum(types) if types else float("nan")


def _minutes(word: str) -> float:
    if word in NEVER or not word.isdecimal():
        return parse_duration(word)
    return float(word) * 60.0


_WORDS = {Status.COMPLETED: "COMPLETED", Status.FAILED: "FAILED", Status.CANCELLED: "CANCELLED"}
_WRITTEN = ("JobIDRaw", "User", "Account", "Partition", "State", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw",
            "AllocCPUS", "AllocNodes", "ReqMem", "AllocTRES")  # fmt: skip


def write(parts: Iterable[Jobs], out: BinaryIO) -> int:
    """Parts of one log, in order. Times are rounded to whole seconds, limits up to whole minutes, as Slurm has them."""
    jobs = 0
    out.write(("|".join(_WRITTEN) + "\n").encode())
    for part in parts:
        zone = ZoneInfo(part.timezone)
        owners = zip(*(words_behind(part, column) for column in ("user", "group", "queue")), strict=True)
        for i, owner in enumerate(owners):
            out.write(("|".join(_row(part, i, owner, zone)) + "\n").encode())
        jobs += len(part)
    return jobs


def _row(jobs: Jobs, i: int, owner: tuple[str, ...], zone: ZoneInfo) -> list[str]:
    def moment(second: float | None) -> str:
        if second is None:
            return "Unknown"
        return datetime.fromtimestamp(round(second), UTC).astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S%z")

    submit, wait, run = jobs.epoch_s + jobs.submit_s[i], float(jobs.wait_s[i]), float(jobs.run_s[i])
    start = round(submit) + round(wait) if wait >= 0 else None
    status, limit, memory = int(jobs.status[i]), float(jobs.request_s[i]), float(jobs.memory_bytes[i])
    cpus, nodes, gpus = int(jobs.cpus[i]), int(jobs.nodes[i]), int(jobs.gpus[i])
    tres = [f"{name}={count}" for name, count in (("cpu", cpus), ("gres/gpu", gpus), ("node", nodes)) if count > 0]
    end = (start if start is not None else round(submit)) + round(run) if run >= 0 else None
    return [
        str(jobs.id[i]), *owner,
        _WORDS.get(Status(status) if status in _WORDS else Status.UNKNOWN, "RUNNING" if start else "PENDING"),
        moment(submit), moment(start), moment(end),
        str(round(run)) if run >= 0 else "", str(-int(-limit // 60)) if limit >= 0 else "UNLIMITED",
        str(max(cpus, 0)), str(max(nodes, 0)), f"{memory / 1024:.0f}K" if memory > 0 else "0", ",".join(tres),
    ]  # fmt: skip
