"""Let jobs of a simulated day go wrong, whatever program they run: traces, rng -> traces whose spans name the faults.

The faults are drawn from recorded signatures of faults. They share no code with the faults that a night imposes for its
golden set: what a night is judged on is not what it is measured with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.simulation.copula_process import draw_ticks
from clustertwin.telemetry.simulation.signature import IDLE, Signatures
from clustertwin.telemetry.simulation.stick_breaking import TICKS

Block = NDArray[np.float32]  # (thread, second, channel) of a job on one node, from the onset on
Fault = Callable[[Block, Signatures, np.random.Generator], Block]
_SHORTEST_S = 900  # jobs that are shorter do not go wrong: there is no time to notice it
_ONSET = (0.15, 0.4)  # part of the job
_USER, _SYSTEM, _IOWAIT, _OTHER = range(4)


def hung_job(block: Block, signatures: Signatures, rng: np.random.Generator) -> Block:
    """Every thread does what an idle thread of the site does."""
    return _drawn(signatures, (IDLE, ""), block, rng)


def bad_io(block: Block, signatures: Signatures, rng: np.random.Generator) -> Block:
    """Four fifths of the time as the recorded job with bad I/O."""
    return np.float32(0.2) * block + np.float32(0.8) * _drawn(signatures, ("bad-io", "bad-io"), block, rng)


def throttled(block: Block, signatures: Signatures, rng: np.random.Generator) -> Block:
    """55 % of the work."""
    slowed = block * np.float32(0.55)
    slowed[..., _OTHER] = 1 - slowed[..., :_OTHER].sum(-1)
    return slowed


def swap_bursts(block: Block, signatures: Signatures, rng: np.random.Generator) -> Block:
    """In 20 of each 60 s, 70 % of the user time is spent in the kernel or waits for the swap device."""
    bursts = (np.arange(block.shape[1]) + int(rng.integers(60))) % 60 < 20
    swapped = block.copy()
    lost = swapped[..., _USER] * np.float32(0.7) * bursts
    swapped[..., _USER] -= lost
    swapped[..., _SYSTEM] += lost / 2
    swapped[..., _IOWAIT] += lost / 2
    return swapped


FAULTS: dict[str, Fault] = {
    "hung-job": hung_job,
    "bad-io": bad_io,
    "throttled": throttled,
    "swap-bursts": swap_bursts,
}


def let_jobs_go_wrong(
    traces: Sequence[Trace], part: float, signatures: Signatures, idles: Sequence[str], rng: np.random.Generator
) -> list[Trace]:
    """A part of the long jobs goes wrong. Programs that idle by design (`idles`) can neither hang nor be throttled."""
    spans = {span.job: span for trace in traces for span in trace.spans if span.end_s - span.start_s >= _SHORTEST_S}
    wrong: dict[str, tuple[str, int]] = {}  # job -> fault, onset
    for job in sorted(spans, key=int):
        kinds = [kind for kind in FAULTS if spans[job].job_type not in idles or kind in ("bad-io",)]
        if rng.random() < part:
            length_s = spans[job].end_s - spans[job].start_s
            onset_s = int(spans[job].start_s + length_s * rng.uniform(*_ONSET))
            wrong[job] = str(rng.choice(kinds)), onset_s
    return [_afflicted(trace, wrong, signatures, rng) for trace in traces]


def _afflicted(
    trace: Trace, wrong: dict[str, tuple[str, int]], signatures: Signatures, rng: np.random.Generator
) -> Trace:
    values, spans = trace.values.copy(), list[JobSpan]()
    for span in trace.spans:
        if span.job not in wrong:
            spans.append(span)
            continue
        kind, onset_s = wrong[span.job]
        rows = np.searchsorted(trace.cpus, span.cpus)
        seconds = slice(onset_s - trace.start_s, round(span.end_s) - trace.start_s)
        values[rows, seconds] = FAULTS[kind](values[rows, seconds], signatures, rng)
        spans.append(replace(span, anomaly=kind, onset_s=float(onset_s)))
    return replace(trace, values=values, spans=tuple(spans))


def _drawn(signatures: Signatures, kind: tuple[str, str], block: Block, rng: np.random.Generator) -> Block:
    ticks = draw_ticks(signatures.kinds[kind], block.shape[0], block.shape[1], rng)
    return (ticks / np.float32(TICKS)).astype(np.float32)
