"""The Standard Workload Format of the Parallel Workloads Archive: a header and 18 numbers per line <-> a job table.

The size of a job is the requested number of processors (field 8), which is what a scheduler sees; if it is missing, the
allocated number (field 5). CPU time, executable, partition and dependencies have no column in the job table and are
not kept.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.foreign_files import LATEST_S
from clustertwin.workload.formats.parsing.byte_stream import Progress, blocks
from clustertwin.workload.formats.parsing.findings import LogFindings
from clustertwin.workload.formats.parsing.validation import RawLog
from clustertwin.workload.jobs import Jobs, Machine

FIELDS = 18
ID, SUBMIT, WAIT, RUN, ALLOCATED, CPU_TIME, USED_KB, PROCS, REQUEST, MEMORY_KB, STATUS, USER, GROUP, _, QUEUE = range(
    15
)
PARTIAL = (2, 3, 4)  # status of partial records; the job also has a summary line
LABELS = {"submit_s": "submit time", "wait_s": "wait time", "run_s": "run time", "request_s": "requested time",
          "cpus": "number of processors", "id": "job number"}  # fmt: skip
#: Larger submit times are Unix timestamps: no log starts 15 years after its own time zero.
LATEST_SUBMIT_S = 5e8

#: The fields that have a column in the job table, and field 6, in which some converters store the limit.
USED = (ID, SUBMIT, WAIT, RUN, ALLOCATED, CPU_TIME, USED_KB, PROCS, REQUEST, MEMORY_KB, STATUS, USER, GROUP, QUEUE)
COUNTED = ("; MaxJobs:", "; MaxRecords:")

Table = NDArray[np.float64]  # (jobs, 18)
Column = NDArray[np.float64]  # (jobs,)


def read_raw(
    path: Path, findings: LogFindings, progress: Progress | None = None, timezone: str | None = None
) -> RawLog:
    """A file, plain or gzip -> raw columns, before validation."""
    return parse(blocks(path, progress=progress), findings, timezone)


def parse(texts: Iterable[bytes], findings: LogFindings, timezone: str | None = None) -> RawLog:
    """Blocks of complete lines -> raw columns. Header lines may appear in any block."""
    kept: dict[int, list[Column]] = {field: [] for field in USED}
    lines: list[NDArray[np.int64]] = []
    header: list[str] = []
    first_line = 1
    for text in texts:
        if not text.endswith(b"\n"):
            text += b"\n"
        table, numbers = _parse_block(text, first_line, header, findings)
        complete = ~_partial_records(table[:, STATUS], numbers, findings)
        for field, blocks_of_field in kept.items():
            blocks_of_field.append(table[complete, field])
        lines.append(numbers[complete])
        first_line += text.count(b"\n")
    # Field by field, so that a large log is not in memory twice.
    columns = {field: np.concatenate(kept.pop(field) or [np.empty(0)]) for field in USED}
    numbers = np.concatenate(lines) if lines else np.empty(0, np.int64)
    return _to_raw(columns, numbers, tuple(header), findings, timezone)


def _parse_block(
    text: bytes, first_line: int, header: list[str], findings: LogFindings
) -> tuple[Table, NDArray[np.int64]]:
    """One block: in one step if all lines are clean, else line by line."""
    while text[:1] == b";":
        comment, _, text = text.partition(b"\n")
        header.append(comment.decode(errors="replace").rstrip())
        first_line += 1
    if b";" not in text and (table := _parse_bulk(text)) is not None:
        return table, np.arange(first_line, first_line + len(table))
    return _parse_lines(text, first_line, header, findings)


def _parse_bulk(text: bytes) -> Table | None:
    """Clean lines in one step; None if some line does not have exactly 18 finite numbers."""
    codes = np.frombuffer(text, np.uint8)
    blank = codes <= 32  # space, tab, carriage return, newline
    starts = np.empty(len(codes), dtype=bool)
    starts[:1] = ~blank[:1]
    np.logical_and(blank[:-1], ~blank[1:], out=starts[1:])
    ends = np.flatnonzero(codes == 10)
    fields = np.diff(np.cumsum(starts, dtype=np.int32)[ends], prepend=0)
    if np.any(fields != FIELDS):
        return None
    try:
        table = np.fromstring(text.decode("ascii"), sep=" ").reshape(-1, FIELDS)
    except ValueError:  # a word that is not a number, or text that is not ASCII
        return None
    # In older versions of numpy, such as 2.1, a word that is no number ends the table: later lines would be lost.
    return table if len(table) == len(ends) and np.isfinite(table).all() else None


def _parse_lines(
    text: bytes, first_line: int, header: list[str], findings: LogFindings
) -> tuple[Table, NDArray[np.int64]]:
    """Line by line: a line that cannot be parsed is dropped with its reason."""
    rows, numbers = [], []
    for line, row in enumerate(text.splitlines(), first_line):
        if row.lstrip()[:1] == b";":
            header.append(row.decode(errors="replace").strip())
            continue
        words = row.split()
        if not words:
            continue
        if len(words) != FIELDS:
            hint = "; ';' separates them, SWF has spaces" if row.count(b";") >= FIELDS - 1 else ""
            findings.drop(line, f"{len(words)} fields, SWF has {FIELDS}{hint}")
            continue
        try:
            values = [float(word) for word in words]
        except ValueError:
            bad = next(i for i, word in enumerate(words) if not _is_number(word))
            findings.drop(line, f"field {bad + 1} is {words[bad].decode(errors='replace')!r}, not a number")
            continue
        if not np.isfinite(values).all():
            bad = int(np.flatnonzero(~np.isfinite(values))[0])
            findings.drop(line, f"field {bad + 1} is {words[bad].decode()!r}, not a finite number")
            continue
        rows.append(values)
        numbers.append(line)
    return np.array(rows, dtype=np.float64).reshape(-1, FIELDS), np.array(numbers, dtype=np.int64)


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _partial_records(status: Column, lines: NDArray[np.int64], findings: LogFindings) -> NDArray[np.bool_]:
    partial = np.isin(status, PARTIAL)
    for line in lines[partial]:
        findings.note(int(line), "partial record of a checkpointed job (status 2 to 4), skipped: it has a summary line")
    return partial


def _to_raw(
    fields: dict[int, Column],
    lines: NDArray[np.int64],
    header: tuple[str, ...],
    findings: LogFindings,
    timezone: str | None,
) -> RawLog:
    entries = parse_header(header)
    request_s = _request(fields[REQUEST], fields[CPU_TIME], lines, findings)
    epoch_s = _epoch(entries, fields[SUBMIT], lines, findings)
    cpus = np.where(fields[PROCS] > 0, fields[PROCS], fields[ALLOCATED])
    cpus[cpus == 0] = -1  # neither a requested nor an allocated number
    kb = np.where(fields[MEMORY_KB] > 0, fields[MEMORY_KB], fields[USED_KB])
    memory = np.where((kb > 0) & (cpus > 0), kb * 1024 * cpus, -1.0)
    columns = {"id": fields[ID], "submit_s": fields[SUBMIT], "wait_s": fields[WAIT], "run_s": fields[RUN],
               "request_s": request_s, "cpus": cpus, "memory_bytes": memory,
               "user": fields[USER], "group": fields[GROUP], "queue": fields[QUEUE],
               "status": fields[STATUS]}  # fmt: skip
    machine = _machine(entries, cpus, lines, findings)
    _check_count(entries, len(lines), findings)
    return RawLog(columns, lines, LABELS, machine=machine, header=header, epoch_s=epoch_s,
               timezone=timezone or _zone(entries, findings), sorted_by_contract=True)  # fmt: skip


def parse_header(header: Iterable[str]) -> dict[str, str]:
    """Header lines -> names and values; the first line of a name counts.

    >>> parse_header(["; MaxProcs: 100", "; MaxProcs: 7"])
    {'MaxProcs': '100'}
    """
    entries: dict[str, str] = {}
    for line in header:
        if match := re.match(r";\s*(\w+):\s*(.*?)\s*$", line):
            entries.setdefault(match[1], match[2])
    return entries


def _number(entries: dict[str, str], name: str) -> int:
    """The number of a header entry; 0 if the entry is missing, unknown (-1) or not a number."""
    match = re.match(r"\d{1,15}(?!\d)", entries.get(name, ""))
    return int(match[0]) if match else 0


def _zone(entries: dict[str, str], findings: LogFindings) -> str:
    name = entries.get("TimeZoneString", "UTC")
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        reason = f"TimeZoneString {name!r} in the header is not a time zone; using UTC (set it with --timezone)"
        findings.note(None, reason)
        return "UTC"
    return name


def _epoch(entries: dict[str, str], submit: Column, lines: NDArray[np.int64], findings: LogFindings) -> float | None:
    if len(submit) and submit.min() > LATEST_SUBMIT_S:
        reason = f"submit time {submit[0]:.0f} is a Unix timestamp; SWF counts seconds from UnixStartTime in the header"
        findings.repair(int(lines[0]), reason, "counted from the timestamp of the first job")
        return None
    start_s = float(_number(entries, "UnixStartTime"))
    if start_s > LATEST_S:
        findings.note(None, f"UnixStartTime {start_s:.0f} in the header is no date; the log is read without one")
        return 0.0
    return start_s


def _request(request: Column, cpu_time: Column, lines: NDArray[np.int64], findings: LogFindings) -> Column:
    """The limit: field 9, or field 6 where a converter misplaced it. Limits are whole minutes, CPU times are not."""
    if len(lines) >= 10 and np.all(request == -1) and np.all((cpu_time > 0) & (cpu_time % 60 == 0)):
        reason = "misplaced columns: no line has a requested time (field 9), and every field 6 is whole minutes"
        findings.repair(int(lines[0]), reason, "field 6 used as the requested time")
        return cpu_time
    return request


def _machine(entries: dict[str, str], cpus: Column, lines: NDArray[np.int64], findings: LogFindings) -> Machine:
    nodes, procs = _number(entries, "MaxNodes"), _number(entries, "MaxProcs")
    procs = procs or nodes
    nodes = nodes or procs
    if procs:
        for i in np.flatnonzero(cpus > procs):
            reason = f"{cpus[i]:.0f} processors, but the header says MaxProcs: {procs}"
            findings.repair(int(lines[i]), reason, "header entry ignored")
        if len(cpus) and cpus.max() > procs:
            nodes = procs = int(cpus.max())
    if nodes and procs % nodes:  # nodes of several sizes: rounded, the machine would lose processors
        reason = f"MaxProcs: {procs} is no multiple of MaxNodes: {nodes}; each processor is counted as a node"
        findings.note(None, reason)
        nodes = procs
    return Machine(nodes, procs // nodes if nodes else 0, name=entries.get("Computer", ""))


def _check_count(entries: dict[str, str], jobs: int, findings: LogFindings) -> None:
    """More jobs than the header says is a fault. Fewer is normal for a cleaned log."""
    expected = _number(entries, "MaxJobs")
    if expected and jobs > expected:
        findings.repair(None, f"{jobs} jobs, but the header says MaxJobs: {expected}", "header entry ignored")
    elif expected and jobs < expected:
        findings.note(None, f"{jobs} jobs, but the header says MaxJobs: {expected}; the log was cleaned or truncated")


def write(parts: Iterable[Jobs], out: BinaryIO) -> int:
    """Parts of one log, in order -> SWF. The number of jobs is filled into the header at the end."""
    jobs = 0
    places: list[int] = []
    for part in parts:
        if jobs == 0:
            for line in _header_of(part):
                if line in COUNTED:
                    if isinstance(out, gzip.GzipFile):  # a gzip stream cannot be rewritten
                        continue
                    places.append(out.tell() + len(line))
                    line += " " * 12
                out.write(line.encode() + b"\n")
        _write_rows(part, out)
        jobs += len(part)
    for place in places:
        out.seek(place)
        out.write(f" {jobs}".encode())
    return jobs


def _header_of(jobs: Jobs) -> Iterator[str]:
    """The header of the log, with correct values in the lines that depend on the jobs."""
    machine, written = jobs.machine, set()
    current = {"Version": "2.2", "Computer": machine.name, "MaxJobs": None, "MaxRecords": None,
               "UnixStartTime": f"{jobs.epoch_s:.0f}" if jobs.epoch_s else "",
               "TimeZoneString": jobs.timezone if jobs.epoch_s else "",
               "MaxNodes": str(machine.nodes or ""), "MaxProcs": str(machine.cpus or machine.nodes or "")}  # fmt: skip
    kept = [line for line in jobs.header if line.startswith(";")]
    for line in kept:
        name = re.match(r";\s*(\w+):", line)
        if name and name[1] in current and name[1] not in ("Version", "Computer"):
            if name[1] not in written and current[name[1]] != "":
                yield f"; {name[1]}:" + (f" {current[name[1]]}" if current[name[1]] is not None else "")
        else:
            yield line
        if name:
            written.add(name[1])
    for label, value in current.items():
        if label not in written and value != "":
            yield f"; {label}:" + (f" {value}" if value is not None else "")
    if not kept and _processors(jobs)[1] != "cpus":
        yield f"; Note: processors are {_processors(jobs)[1]}"


def _processors(jobs: Jobs) -> tuple[NDArray[np.int64], str]:
    """SWF has one resource: cpus if the log counts them, else nodes."""
    return (jobs.cpus, "cpus") if np.any(jobs.cpus > 0) or not np.any(jobs.nodes > 0) else (jobs.nodes, "nodes")


def _write_rows(jobs: Jobs, out: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow import csv

    procs, _ = _processors(jobs)
    unknown = np.full(len(jobs), -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        kb = np.where((jobs.memory_bytes > 0) & (procs > 0), jobs.memory_bytes / 1024 / procs, -1)
    columns = [jobs.id, jobs.submit_s, jobs.wait_s, jobs.run_s, procs, unknown, unknown, procs, jobs.request_s, kb,
               jobs.status, jobs.user, jobs.group, unknown, jobs.queue, unknown, unknown, unknown]  # fmt: skip
    arrays = [pa.array(values.astype(np.int64) if np.all(values % 1 == 0) else values) for values in columns]
    table = pa.Table.from_arrays(arrays, names=[str(i) for i in range(FIELDS)])
    csv.write_csv(table, out, csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none"))
