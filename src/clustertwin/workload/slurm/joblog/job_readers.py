"""Job logs of Slurm -> SlurmLog: `sacct --parsable2`, or event files of sbatch command lines with submit times.

    sacct -a -X -P --delimiter "|$(openssl rand -hex 8)|" -S 2024-01-01 --format \\
      JobIDRaw,JobID,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,\\
ReqNodes,ReqCPUS,ReqMem,ReqTRES,Constraints,Reservation,NodeList,SubmitLine

NodeList and SubmitLine are optional. NodeList shows which nodes were out. SubmitLine tells what sacct has no column
for: tasks, exclusive nodes, dependencies, nice. It is a text of a user, which can contain what looks like a row of
another user; the random separator tells them apart.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats.parsing.byte_stream import blocks
from clustertwin.workload.formats.parsing.sacct_pipes import forgeable, mark_of
from clustertwin.workload.formats.parsing.slurm_fields import STATES
from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog, in_order
from clustertwin.workload.slurm.joblog.sbatch_options import array_tasks, sbatch_options, with_options
from clustertwin.workload.slurm.site.quantities import (
    Gres,
    expand_hosts,
    parse_limit_s,
    parse_memory_mb,
    parse_number,
    parse_size,
    parse_tres,
)
from clustertwin.workload.slurm.site.slurm_site import SiteReport

Parsed = TypeVar("Parsed")

#: Of the unpacked text: ten million jobs with their command lines.
MOST_BYTES = 1 << 32


def read_log(path: Path) -> SlurmLog:
    """A log, plain or gzip; the first line tells which format it is."""
    text = _text(path)
    first = next((line for line in text.split("\n", 1000) if line.strip()), "")
    if first.lstrip().startswith("-dt"):
        return parse_events(text, path)
    if "|" in first and "Submit" in first:
        return parse_sacct(text, path)
    if separator := re.search(r"[;,\t]\s*\bSubmit\b", first):
        raise TraceError(path, f"the columns are separated by {separator[0][0]!r}; sacct --parsable2 uses '|'", 1)
    if "\0" in first:
        raise TraceError(path, "the text has zero bytes: UTF-16 without a byte-order mark? Convert it to UTF-8", 1)
    reason = "neither sacct --parsable2 with the column Submit nor an event file that begins with -dt"
    raise TraceError(path, f"{reason}; `twin trace convert LOG log.sacct` makes one of another job log", 1)


def _text(path: Path) -> str:
    """The whole text. Lines and their sum are bounded, also when gzip unpacks them."""
    parts, size_bytes = [], 0
    for block in blocks(path):
        size_bytes += len(block)
        if size_bytes > MOST_BYTES:
            raise TraceError(path, f"more than {MOST_BYTES:,} bytes; split the log")
        parts.append(block)
    return b"".join(parts).decode(errors="replace")


def parse_events(text: str, where: Path | str) -> SlurmLog:
    """Lines `-dt SECONDS -e submit_batch_job | -sim-walltime SECONDS --uid=USER <sbatch options>`."""
    report = SiteReport()
    jobs: list[SlurmJob] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        head, bar, rest = line.partition("|")
        words = head.split()
        if not bar or len(words) < 4 or words[0] != "-dt" or words[2] != "-e":
            raise TraceError(where, "not -dt SECONDS -e submit_batch_job | OPTIONS", number)
        if words[3] != "submit_batch_job":
            report.add("not modelled", f"event {words[3]}", f"{Path(where).name}:{number}")
            continue
        place = f"{Path(where).name}:{number}"
        try:
            options = sbatch_options(rest)
            run_s = float(options.pop("sim-walltime", "-1"))
            submit_s = float(words[1])
            job = SlurmJob(len(jobs) + 1, submit_s, run_s if run_s >= 0 else math.inf, options.pop("uid", ""))
            jobs.extend(array_tasks(with_options(job, options, report, place), options, len(jobs)))
        except (ValueError, OverflowError) as error:
            raise TraceError(where, str(error), number) from error
    return in_order(jobs, 0.0, report)


def parse_sacct(text: str, where: Path | str) -> SlurmLog:
    """A report of `sacct --parsable2`; lines of job steps are skipped."""
    report = SiteReport()
    # Only a line feed ends a row: command lines are user text, which may contain other line separators.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    header = [name.strip() for name in (lines[0][1] if lines else "").rstrip("|").split("|")]
    mark = mark_of(header)
    if mark:
        header = header[::2]
    elif reason := forgeable(header):
        report.add("assumed", reason, f"{Path(where).name}:{lines[0][0]}")
    if "Submit" not in header or not {"JobID", "JobIDRaw"} & set(header):
        raise TraceError(where, "no columns JobIDRaw and Submit; print them with sacct --format", 1)
    if repeated := [name for name, count in Counter(header).items() if count > 1]:
        raise TraceError(where, f"the column {repeated[0]} appears twice", lines[0][0])
    last_runs: dict[str, SlurmJob] = {}  # `sacct --duplicates` has a row for each run of a requeued job
    local = False
    for number, line in lines[1:]:
        place = f"{Path(where).name}:{number}"
        if not line.count(f"|{mark}|") if mark else _continues(line, header):
            report.add("assumed", "lines that go on with a command line, which are left out", place)
            continue
        cells = _marked_cells(line, header, mark) if mark else _cells(line, header)
        if cells is None:
            columns = line.count(f"|{mark}|" if mark else "|") + 1
            raise TraceError(where, f"{columns} columns, the header has {len(header)}", number)
        try:
            job = _sacct_job(cells, report, place)
        except (ValueError, OverflowError) as error:
            raise TraceError(where, str(error), number) from error
        if job is None:
            continue
        word = cells.get("JobID") or cells["JobIDRaw"]
        if earlier := last_runs.pop(word, None):
            if (earlier.user, earlier.id) != (job.user, job.id):
                reason = f"job {word} is of user {job.user[:40]!r}, an earlier row has another user or JobIDRaw"
                raise TraceError(where, f"{reason}: a false row, or job ids were reset", number)
            report.add("assumed", "jobs with several rows, as after a requeue: only the last row counts", place)
        last_runs[word] = job
        local = local or _is_local(cells["Submit"])
    rows = list(last_runs.values())
    if not rows:
        raise TraceError(where, "no jobs")
    epoch_s = min(job.submit_s for job in rows)
    # Equal priorities are served by the array's id; its last task keeps that id, the others get later ones.
    rows.sort(key=lambda job: (job.submit_s, job.array or job.id, job.id == job.array, job.id))
    return SlurmLog(tuple(_since(job, epoch_s) for job in rows), epoch_s, report, local)


def _continues(line: str, header: list[str]) -> bool:
    """Whether a line is not a row, but goes on with the command line of the row before it."""
    if header[-1] != "SubmitLine" or line.count("|") >= len(header) - 1:
        return False
    ids = [cell for name, cell in zip(header, line.split("|"), strict=False) if name in ("JobID", "JobIDRaw")]
    return not ids or not all(map(_ID.match, ids))


def _cells(line: str, header: list[str]) -> dict[str, str] | None:
    """The cells of a line; sacct does not escape `|`, so spare ones belong to Constraints or to SubmitLine."""
    cells = line.split("|")
    last = len(header) - 1
    if len(cells) > len(header) and header[last] == "SubmitLine":
        command = next((k for k in range(last, len(cells)) if _COMMAND.match(cells[k])), last)
        if "Constraints" in header and command > last:
            at, spare = header.index("Constraints"), command - last
            cells = [*cells[:at], "|".join(cells[at : at + spare + 1]), *cells[at + spare + 1 :]]
        cells = [*cells[:last], "|".join(cells[last:])]
    if len(cells) == len(header) + 1 and not cells[-1]:
        cells.pop()
    return dict(zip(header, (cell.strip() for cell in cells), strict=True)) if len(cells) == len(header) else None


def _marked_cells(line: str, header: list[str], mark: str) -> dict[str, str] | None:
    cells = line.split(f"|{mark}|")
    return dict(zip(header, (cell.strip() for cell in cells), strict=True)) if len(cells) == len(header) else None


_COMMAND = re.compile(r"(\S*/)?(sbatch|srun|salloc)\b")
_ID = re.compile(r"(\d+)(?:_(\d+|\[[^\]]*\]))?(?:\+(\d+))?(\..+)?$")
_NONE = {"", "Unknown", "None", "INVALID", "N/A"}


def _sacct_job(cells: dict[str, str], report: SiteReport, place: str) -> SlurmJob | None:
    word = cells.get("JobID") or cells["JobIDRaw"]
    match = _ID.match(word)
    if match is None:
        raise ValueError(f"{word!r} is not a job id of Slurm")
    if match[4]:
        return None
    if match[3]:
        report.add("not modelled", "heterogeneous jobs: their parts start independently", place)
    raw = cells.get("JobIDRaw", "")
    number = (int(raw) if raw.isdigit() else 0) or int(match[1])  # a task without its own number has its array's
    if max(number, int(match[1])) >= 2**62:
        raise ValueError(f"job id {word} is beyond 64 bits")
    if (match[2] or "").startswith("["):
        report.add("assumed", "array tasks that never started share one row: taken as one job", place)
    state = (cells.get("State") or "COMPLETED").split()[0].rstrip("+")
    if state not in STATES:
        report.add("unknown", f"State {state}", place)
    submit, start, end = (_field(cells, name, _time_s) for name in ("Submit", "Start", "End"))
    if math.isnan(submit):
        raise ValueError("no time of submission")
    tres, nodes, cpus = _requested(cells, report, place)
    held = _field(cells, "NodeList", _node_list)
    if state == "CANCELLED" and start == end and not held:
        start = math.nan  # it never started: older versions of Slurm print its end as its start
    run_s = _run_s(cells, start, end)
    if run_s < 0:
        raise ValueError(
            f"End {cells['End']} is before Start {cells['Start']}; "
            "if the clocks were set back, print the log with SLURM_TIME_FORMAT=%s"
        )
    cancelled = state == "CANCELLED" and math.isnan(start) and not math.isnan(end)
    if start < submit:
        report.add("assumed", "jobs that start before their submission: the start is not compared", place)
        start = math.nan
    job = SlurmJob(
        number, submit, run_s, cells.get("User", ""), cells.get("Account", ""),
        tuple(filter(None, cells.get("Partition", "").split(","))), cells.get("QOS", ""), _limit_s(cells),
        nodes_min=nodes, nodes_max=nodes, tasks=cpus, gres=_gres(tres, nodes), constraint=cells.get("Constraints", ""),
        reservation=cells.get("Reservation", ""), array=int(match[1]) if match[2] else 0,
        succeeds=state == "COMPLETED", start_s=start, end_s=end, nodes=held,
        **_memory(cells, tres, nodes),
    )  # fmt: skip
    eligible = _field(cells, "Eligible", _time_s)
    if eligible > submit:
        job = replace(job, begin_s=eligible)
    if cancelled:
        job = replace(job, cancel_s=end)
    if _field(cells, "Restarts", lambda text: parse_size(text or "0")):
        report.add("assumed", "requeued jobs: only their last run is known", place)
    if cells.get("SubmitLine"):
        job = _with_submit_line(job, cells["SubmitLine"], report, place, int(match[3] or 0))
    return job


def _with_submit_line(job: SlurmJob, line: str, report: SiteReport, place: str, part: int) -> SlurmJob:
    """Only what sacct has no column for is taken from the command line: scripts may set the rest themselves."""
    try:
        options = sbatch_options(line, part)
        asked = with_options(job, {k: v for k, v in options.items() if k not in ("begin", "het-group")}, report, place)
    except ValueError as error:
        report.add("assumed", f"SubmitLine is not understood ({error})", place)
        return job
    limit = int(options.get("array", "").partition("%")[2] or 0)
    if limit or asked.dependency:  # sacct's Eligible tells when these let the job go; the simulation finds that itself
        job = replace(job, begin_s=-math.inf)
    return replace(
        job, exclusive=asked.exclusive, nodelist=asked.nodelist, exclude=asked.exclude, nice=asked.nice,
        dependency=asked.dependency, requeue=asked.requeue,
        cpus_per_task=asked.cpus_per_task, tasks=max(job.tasks // max(asked.cpus_per_task, 1), 1),
        tasks_per_node=asked.tasks_per_node, nodes_max=asked.nodes_max if "nodes" in options else 0,
        memory_per_cpu_mb=asked.memory_per_cpu_mb,
        memory_as_recorded=job.memory_as_recorded and not {"mem", "mem-per-cpu"} & options.keys(),
        memory_per_node_mb=asked.memory_per_node_mb if "mem-per-cpu" not in options else math.nan, array_limit=limit,
    )  # fmt: skip


def _requested(cells: dict[str, str], report: SiteReport, place: str) -> tuple[dict[str, float], int, int]:
    """TRES, nodes and CPUs of a job. A log without columns of requests has what jobs were given instead."""
    asks = {"ReqNodes", "ReqCPUS", "ReqTRES"} & cells.keys()
    given = {"AllocNodes", "NNodes", "AllocCPUS", "NCPUS", "AllocTRES"} & cells.keys()
    if not asks:
        what = "as large as what they were given" if given else "one CPU for each job"
        report.add("assumed", f"no column ReqCPUS, ReqNodes or ReqTRES: {what}", place)
    tres_name, *names = ("ReqTRES", "ReqNodes", "ReqCPUS") if asks else ("AllocTRES", "AllocNodes", "AllocCPUS")
    tres = _field(cells, tres_name, lambda text: parse_tres(re.sub(r"billing=[^,]*,?", "", text)))
    if not asks:
        names = [name if name in cells else old for name, old in zip(names, ("NNodes", "NCPUS"), strict=True)]
    nodes = _field(cells, names[0], lambda text: parse_size(text or f"{tres.get('node', 0):.0f}")) or 1
    cpus = _field(cells, names[1], lambda text: parse_size(text or f"{tres.get('cpu', 0):.0f}")) or 1
    return tres, nodes, cpus


def _field(cells: dict[str, str], name: str, parse: Callable[[str], Parsed]) -> Parsed:
    """A column's value; its name is part of the reason if it cannot be read."""
    try:
        return parse(cells.get(name, ""))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} is {cells[name][:40]!r}: {error}") from error


def _time_s(text: str) -> float:
    if text in _NONE:
        return math.nan
    if text.isdecimal():
        return parse_number(text)
    moment = datetime.fromisoformat(text)
    if not 1900 <= moment.year < 9999:
        raise ValueError(f"the year {moment.year} is not plausible")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _is_local(text: str) -> bool:
    """Whether a time has no zone, as sacct prints it."""
    return not text.isdecimal() and datetime.fromisoformat(text).tzinfo is None


def _node_list(text: str) -> tuple[str, ...]:
    return () if text in _NONE or text.lower() == "none assigned" else tuple(expand_hosts(text))


def _run_s(cells: dict[str, str], start: float, end: float) -> float:
    if math.isnan(start):
        return _field(cells, "ElapsedRaw", lambda text: float(text) if text.isdigit() else 0.0) or math.inf
    if cells.get("ElapsedRaw", "").isdigit() and not math.isnan(end):
        return _field(cells, "ElapsedRaw", parse_number)
    return end - start if not math.isnan(end) else math.inf


def _limit_s(cells: dict[str, str]) -> float:
    text = cells.get("TimelimitRaw") or cells.get("Timelimit") or ""
    if text in _NONE or ("imit" in text.lower()[-6:] and "_" in text):
        return math.nan
    return _field(cells, "TimelimitRaw" if cells.get("TimelimitRaw") else "Timelimit", parse_limit_s)


def _memory(cells: dict[str, str], tres: dict[str, float], nodes: int) -> dict[str, Any]:
    text = cells.get("ReqMem", "")
    kind = {"c": "memory_per_cpu_mb", "n": "memory_per_node_mb"}.get(text[-1:])
    if kind:
        return {kind: _field(cells, "ReqMem", lambda text: parse_memory_mb(text[:-1]))}
    total = tres.get("mem") or (_field(cells, "ReqMem", parse_memory_mb) if text[:1].isdecimal() else math.nan)
    return {"memory_per_node_mb": total / nodes, "memory_as_recorded": True}


def _gres(tres: dict[str, float], nodes: int) -> tuple[Gres, ...]:
    typed = {name.split(":")[0] for name in tres if name.startswith("gres/") and ":" in name}
    return tuple(
        Gres(name[5:].partition(":")[0], name.partition(":")[2], max(int(amount) // nodes, 1))
        for name, amount in tres.items()
        if name.startswith("gres/") and name not in typed and amount
    )


def _since(job: SlurmJob, epoch_s: float) -> SlurmJob:
    return replace(
        job, submit_s=job.submit_s - epoch_s, begin_s=job.begin_s - epoch_s, cancel_s=job.cancel_s - epoch_s,
        start_s=job.start_s - epoch_s, end_s=job.end_s - epoch_s,
    )  # fmt: skip
