"""Write public recordings as campaigns that `twin study` reads: a Spark cluster, an MPI application, the zoo.

    python benchmarks/recorded_campaigns.py DATA OUT
    twin study OUT/spark --preset reference --ensemble 3 --out study-spark

DATA holds spark-cluster/*.npz (t, ratio) and hpas/*.npz (ratio, anomalies); a folder that is missing is left out. No
second is in two campaigns, and none is in two splits:

    spark  several files hold the same seconds of the same nodes, so they are joined by second. A day is a campaign: the
           first trains, the second validates, the last is the test.
    hpas   the healthy run and the healthy seconds of every second run train and validate, the other runs are the test.
    zoo    programs at even places of the table train and validate, those at odd places are the test, so that every
           program of the test is unknown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.campaign.simulated_rounds import write_recording
from clustertwin.telemetry.campaign.zoo.program_table import PROGRAMS
from clustertwin.telemetry.campaign.zoo.zoo_data import ZooRun, load_zoo

_DAY_S = 86_400
_STARTED_S = 30  # the start of a program of the zoo is left out


def spark_days(folder: Path) -> list[list[Trace]]:
    """The traces of each day, one for each node, in the order of the days; every second once."""
    days: dict[int, list[Path]] = {}
    for path in sorted(folder.glob("*.npz")):
        days.setdefault(int(np.load(path)["t"][0]) // _DAY_S, []).append(path)
    return [_joined(days[day]) for day in sorted(days)]


def _joined(paths: Sequence[Path]) -> list[Trace]:
    files = [np.load(path) for path in paths]
    seconds = [np.rint(file["t"]).astype(np.int64) for file in files]
    start_s = int(min(each[0] for each in seconds))
    length = int(max(each[-1] for each in seconds)) - start_s + 1
    ratios = [np.clip(file["ratio"].astype(np.float32), 0, 1) for file in files]  # (node, cpu, time, mode)
    traces = []
    for node in range(len(ratios[0])):
        values = np.zeros((len(ratios[0][node]), length, 4), np.float32)
        valid = np.zeros(values.shape[:2], np.bool_)
        # The first file wins where two hold the same second.
        for second, ratio in reversed(list(zip(seconds, ratios, strict=True))):
            total = ratio[node].sum(-1)  # (cpu, time)
            known = np.isfinite(total) & (total > 0.5)
            at = second - start_s
            shares = ratio[node] / np.where(known, total, 1)[..., None]
            values[:, at] = np.where(known[..., None], shares, values[:, at])
            valid[:, at] |= known
        traces.append(Trace(f"n{node}", tuple(range(len(values))), start_s, CPU, values, valid))
    return traces


def with_one_job(trace: Trace, name: str) -> Trace:
    """A recording without job information, as one job on all threads."""
    span = JobSpan(name, trace.node, trace.cpus, float(trace.start_s), float(trace.end_s), name)
    return replace(trace, spans=(span,))


def read_hpas_run(path: Path, number: int) -> Trace:
    """The seconds in which the application computes; what is before, between and after its faults are spans."""
    file = np.load(path)
    ratio = file["ratio"].astype(np.float32)  # (cpu, time, mode)
    ratio /= np.maximum(ratio.sum(-1, keepdims=True), 1e-6)
    busy = np.flatnonzero(ratio[:, :, 0].mean(0) > 0.5)
    faults = [(str(kind), int(start), int(end)) for kind, start, end in file["anomalies"]]
    start_s = number * _DAY_S  # runs have no date: a day for each
    cpus = tuple(range(len(ratio)))
    spans = tuple(
        JobSpan(path.stem, "n1", cpus, float(start_s + a), float(start_s + b), "application", anomaly=kind)
        for a, b, kind in _phases(int(busy[0]) + _STARTED_S, int(busy[-1]), faults)
    )
    return Trace("n1", cpus, start_s, CPU, ratio, np.ones(ratio.shape[:2], np.bool_), spans)


def _phases(start: int, end: int, faults: Iterable[tuple[str, int, int]]) -> list[tuple[int, int, str]]:
    """(begin, end, the faults in force joined by "+"), without gaps."""
    faults = list(faults)
    edges = sorted({start, end, *(edge for _, a, b in faults for edge in (a, b) if start < edge < end)})
    return [
        (a, b, "+".join(sorted(kind for kind, begin, stop in faults if begin <= a and b <= stop)))
        for a, b in pairwise(edges)
    ]


def zoo_trace(run: ZooRun) -> Trace:
    """A run of the zoo: its healthy phase, and each fault as a span of its own."""
    trace = run.trace
    first_s = run.phases[0].onset_s if run.phases else trace.end_s
    job = JobSpan(run.name, trace.node, trace.cpus, trace.start_s + _STARTED_S, first_s, run.program)
    faults = [
        replace(job, start_s=phase.onset_s, end_s=phase.end_s, anomaly=phase.fault, onset_s=phase.onset_s)
        for phase in run.phases
    ]
    inside = np.zeros_like(trace.valid)  # what is neither healthy nor a fault, such as the start, belongs to no kind
    for span in (job, *faults):
        inside[:, int(np.ceil(span.start_s)) - trace.start_s : int(span.end_s) - trace.start_s] = True
    return replace(trace, spans=(job, *faults), valid=trace.valid & inside, node_channels=None, job_channels=None)


def healthy(trace: Trace) -> Trace:
    """Without the seconds of faults: those become unknown."""
    valid: NDArray[np.bool_] = trace.valid.copy()
    for span in trace.spans:
        if span.anomaly:
            valid[:, int(span.start_s) - trace.start_s : int(np.ceil(span.end_s)) - trace.start_s] = False
    return replace(trace, valid=valid, spans=tuple(span for span in trace.spans if not span.anomaly))


def write_all(data: Path, out: Path) -> None:
    days = spark_days(data / "spark-cluster")
    for day, split in zip(days, ("train", "validation", "test"), strict=False):
        write_recording(out / "spark" / split, [with_one_job(trace, "spark") for trace in day], f"spark-{split}", split)
    for number, path in enumerate(sorted((data / "hpas").glob("*.npz"))):
        split = "test" if number % 2 == 0 and number else "validation" if number % 8 == 3 else "train"
        trace = read_hpas_run(path, number)
        write_recording(
            out / "hpas" / path.stem, [trace if split == "test" else healthy(trace)], f"hpas-{number}", split
        )
    places = list(PROGRAMS)
    for run in load_zoo():
        place = places.index(run.program)
        split = "test" if place % 2 else "validation" if place % 6 == 0 else "train"
        trace = zoo_trace(run)
        write_recording(out / "zoo" / run.name, [trace if split == "test" else healthy(trace)], run.name, split)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    write_all(options.data, options.out)
    for folder in sorted(options.out.iterdir()):
        print(f"{folder}: {sum(1 for _ in folder.iterdir())} campaigns")


if __name__ == "__main__":
    main()
