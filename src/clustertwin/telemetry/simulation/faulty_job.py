"""Make one job of a simulated cluster go wrong: its traces, the job, the fault, the onset -> traces with the fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.simulation.anomalies import draw_afflicted
from clustertwin.telemetry.simulation.signature import Signatures
from clustertwin.telemetry.simulation.stick_breaking import TICKS


@dataclass(frozen=True, slots=True)
class JobFault:
    """A fault that begins in the middle of a job."""

    job: str
    anomaly: str  # a name of the table of anomalies
    onset_s: int  # epoch second


def with_fault(traces: Sequence[Trace], fault: JobFault, signatures: Signatures, seed: int) -> list[Trace]:
    """The traces with the seconds of the job's threads redrawn from the onset on. All other seconds stay."""
    spans = [span for trace in traces for span in trace.spans if span.job == fault.job]
    if not spans or not spans[0].start_s <= fault.onset_s < spans[0].end_s:
        raise SettingsError(f"job {fault.job!r} does not run at second {fault.onset_s}")
    threads, seconds = sum(len(span.cpus) for span in spans), int(spans[0].end_s) - fault.onset_s
    rng = np.random.default_rng((seed, 3))
    ticks = draw_afflicted(
        signatures, spans[0].job_type, fault.anomaly, threads, seconds, int(rng.integers(threads)), rng
    )
    ratios = (ticks / TICKS).astype(np.float32)  # (thread, second, channel)
    first, afflicted = 0, []
    for trace in traces:
        for span in (span for span in trace.spans if span.job == fault.job):
            trace = _afflict(trace, span, fault, ratios[first : first + len(span.cpus)])
            first += len(span.cpus)
        afflicted.append(trace)
    return afflicted


def _afflict(trace: Trace, span: JobSpan, fault: JobFault, ratios: NDArray[np.float32]) -> Trace:
    rows = [trace.cpus.index(cpu) for cpu in span.cpus]
    begin = fault.onset_s - trace.start_s
    values = trace.values.copy()
    values[rows, begin : begin + ratios.shape[1]] = ratios
    labelled = replace(span, anomaly=fault.anomaly, onset_s=float(fault.onset_s))
    return replace(trace, values=values, spans=tuple(labelled if each is span else each for each in trace.spans))
