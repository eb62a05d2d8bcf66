"""MIT SuperCloud's scheduler log, `slurm-log.csv`: a dump of the job table of Slurm's database <-> a job table.

Times are seconds since 1970 (0: never) and limits are minutes. Memory is in MB per node; if the top bit is set, it is
in MB per cpu.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats.parsing.byte_stream import Progress
from clustertwin.workload.formats.parsing.delimited import DelimitedBatch, first_positive, header_of, read_batches
from clustertwin.workload.formats.parsing.findings import LogFindings
from clustertwin.workload.formats.parsing.slurm_fields import STATE_NUMBERS, STATES, parse_tres
from clustertwin.workload.formats.parsing.validation import RawLog
from clustertwin.workload.formats.parsing.word_codes import WordCodes, words_behind
from clustertwin.workload.jobs import Jobs, Status

NEEDED = ("id_job", "time_submit", "time_start", "time_end")
USED = (*NEEDED, "id_user", "id_group", "account", "partition", "nodes_alloc", "cpus_req", "mem_req", "state",
        "timelimit", "gres_used", "tres_alloc", "tres_req")  # fmt: skip
LABELS = {"id": "id_job", "submit_s": "time_submit", "wait_s": "time_start - time_submit", "request_s": "timelimit",
          "run_s": "time_end - time_start", "nodes": "nodes_alloc", "cpus": "cpus_req"}  # fmt: skip
PER_CPU = 1 << 63
NO_NUMBER = 4294967294  # Slurm's NO_VAL; one above it is INFINITE
#: Numbers of the TRES table in Slurm's database. The generic resources of a site start at 1001.
CPU, NODE, FIRST_GRES = "1", "4", 1001

_GPU = re.compile(r"\bgpu\b(?::[^:,(]+)?:(\d+)")

Floats = NDArray[np.float64]


def read_raw(
    path: Path, findings: LogFindings, progress: Progress | None = None, timezone: str | None = None
) -> RawLog:
    """A file, plain or gzip -> raw columns, before validation."""
    names = header_of(path, ",")
    if missing := [name for name in NEEDED if name not in names]:
        raise TraceError(path, f"column {missing[0]!r} is missing; the first line has {', '.join(names)}", 1)
    wanted = [name for name in USED if name in names]
    codes = {"user": WordCodes(), "group": WordCodes(), "queue": WordCodes()}
    parts, lines = [], []
    for batch in read_batches(path, ",", wanted, findings, progress):
        parts.append(_columns(batch, codes, findings))
        lines.append(batch.lines)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in (parts or [{}])[0]}
    return RawLog(columns, np.concatenate(lines) if lines else np.empty(0, np.int64), LABELS,
               names={name: entry.words for name, entry in codes.items() if entry.words},
               timezone=timezone or "UTC")  # fmt: skip


def _columns(batch: DelimitedBatch, codes: dict[str, WordCodes], findings: LogFindings) -> dict[str, Floats]:
    submit, start, end = (batch.numbers(name, findings) for name in NEEDED[1:])
    started, ended = start > 0, end > 0
    alloc = _tres(batch, "tres_alloc", findings)
    req = _tres(batch, "tres_req", findings)
    nodes = first_positive(alloc["nodes"], _numbers(batch, "nodes_alloc", findings), req["nodes"])
    cpus = first_positive(alloc["cpus"], _numbers(batch, "cpus_req", findings), req["cpus"])
    columns = {
        "id": batch.numbers("id_job", findings),
        "submit_s": np.where(submit > 0, submit, np.nan),
        "wait_s": np.where(started, start - submit, -1.0),
        "run_s": np.where(started & ended, end - start, np.where(ended, 0.0, -1.0)),
        "request_s": _limit(batch, findings),
        "nodes": nodes,
        "cpus": cpus,
        "gpus": np.fmax(alloc["gpus"], _gres(batch, findings)),
        "memory_bytes": _memory(batch, cpus, nodes, findings),
    }
    if "state" in batch.words:
        columns["status"] = batch.parsed("state", _status, findings)
    for ours, choices in {"user": ("id_user",), "group": ("account", "id_group"), "queue": ("partition",)}.items():
        if theirs := next((name for name in choices if name in batch.words), None):
            columns[ours] = codes[ours].encode(batch.words[theirs])
    return columns


def _numbers(batch: DelimitedBatch, name: str, findings: LogFindings) -> Floats:
    return batch.numbers(name, findings) if name in batch.words else np.full(len(batch), np.nan)


def _tres(batch: DelimitedBatch, name: str, findings: LogFindings) -> dict[str, Floats]:
    """`1=8,2=16000,4=1,1001=2` -> cpus, nodes and gpus; nan where the list has no entry."""
    if name not in batch.words:
        return dict.fromkeys(("cpus", "nodes", "gpus"), np.full(len(batch), np.nan))
    return {
        "cpus": batch.parsed(name, lambda word: float(parse_tres(word).get(CPU, "nan")), findings),
        "nodes": batch.parsed(name, lambda word: float(parse_tres(word).get(NODE, "nan")), findings),
        "gpus": batch.parsed(name, _tres_gpus, findings),
    }


def _tres_gpus(word: str) -> float:
    """Slurm lists a GPU as `gpu` and again under its model, so the largest entry is the number of GPUs."""
    counts = [float(value) for name, value in parse_tres(word).items() if name.isdigit() and int(name) >= FIRST_GRES]
    return max(counts, default=0.0)


def _gres(batch: DelimitedBatch, findings: LogFindings) -> Floats:
    """`gpu:volta:2` -> 2."""
    if "gres_used" not in batch.words:
        return np.zeros(len(batch))
    gpus = batch.parsed("gres_used", lambda word: float(sum(map(int, _GPU.findall(word)))), findings)
    return np.nan_to_num(gpus)


def _limit(batch: DelimitedBatch, findings: LogFindings) -> Floats:
    minutes = _numbers(batch, "timelimit", findings)
    return np.where((minutes > 0) & (minutes < NO_NUMBER), minutes * 60, -1.0)


def _memory(batch: DelimitedBatch, cpus: Floats, nodes: Floats, findings: LogFindings) -> Floats:
    """MB per cpu or node -> bytes per job. The words are parsed as integers: a float would round the low bits away."""
    if "mem_req" not in batch.words:
        return np.full(len(batch), -1.0)
    share_mb = batch.parsed("mem_req", lambda word: float(_integer(word) % PER_CPU), findings)
    per_cpu = batch.parsed("mem_req", lambda word: float(_integer(word) >= PER_CPU), findings) == 1
    shares = np.maximum(np.where(per_cpu, cpus, nodes), 1)
    return np.where(share_mb > 0, share_mb * shares * 1024.0**2, -1.0)


def _integer(word: str) -> int:
    return int(float(word)) if "." in word else int(word)


def _status(word: str) -> float:
    number = int(float(word)) & 0xFF  # the higher bits are flags
    if number >= len(STATE_NUMBERS):
        raise ValueError("not a Slurm job state")
    return float(STATES[STATE_NUMBERS[number]])


def write(parts: Iterable[Jobs], out: BinaryIO) -> int:
    """Parts of one log, in order. The format has whole seconds, and limits in minutes, which are rounded up."""
    import pyarrow as pa
    from pyarrow import csv

    jobs = 0
    states = {Status.COMPLETED: 3, Status.CANCELLED: 4, Status.FAILED: 5}
    for part in parts:
        submit = np.rint(part.submit_s + part.epoch_s).astype(np.int64)
        # The format tells a run time by its two ends: a job that ran, with an unknown wait, begins at its submission.
        begun = (part.wait_s >= 0) | (part.run_s > 0)
        start = np.where(begun, submit + np.rint(np.maximum(part.wait_s, 0)).astype(np.int64), 0)
        run = np.rint(part.run_s).astype(np.int64)
        end = np.where(run < 0, 0, np.where(start > 0, start + run, submit))
        nodes, cpus, gpus = (np.maximum(values, 0) for values in (part.nodes, part.cpus, part.gpus))
        memory = np.where(part.memory_bytes > 0, part.memory_bytes / np.maximum(nodes, 1) / 1024**2, 0)
        tres = [f"1={c},4={n},{FIRST_GRES}={g}" for c, n, g in zip(cpus, nodes, gpus, strict=True)]
        table: dict[str, Any] = {
            "id_job": part.id, "id_user": words_behind(part, "user"), "account": words_behind(part, "group"),
            "partition": words_behind(part, "queue"), "nodes_alloc": nodes, "cpus_req": cpus,
            "mem_req": np.rint(memory).astype(np.int64),
            "state": np.array([states.get(int(code), 1) for code in part.status]),  # type: ignore[call-overload]
            "timelimit": np.where(part.request_s >= 0, np.ceil(part.request_s / 60), NO_NUMBER + 1).astype(np.int64),
            "time_submit": submit, "time_start": start, "time_end": end, "tres_alloc": tres,
        }  # fmt: skip
        csv.write_csv(pa.table(table), out, csv.WriteOptions(include_header=jobs == 0, quoting_style="needed"))
        jobs += len(part)
    return jobs
