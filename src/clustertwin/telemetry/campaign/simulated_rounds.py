"""Write simulated campaigns: settings, signatures, rounds, seed -> one recording per round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clustertwin.core.durations import DAY_S
from clustertwin.core.traces import Trace
from clustertwin.telemetry.campaign.plan import split_of
from clustertwin.telemetry.recording import Recorder
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import Signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


@dataclass(frozen=True, slots=True)
class SimulatedRound:
    """One simulated campaign on disk."""

    directory: Path
    campaign: str
    split: str
    jobs: int
    anomalous: int
    thread_s: int


def write_rounds(
    out: Path, settings: ClusterSettings, signatures: Signatures, rounds: int, seed: int
) -> Iterator[SimulatedRound]:
    """Simulate and write round after round. Only test rounds have anomalies; training and validation are normal."""
    for number in range(rounds):
        split, days = split_of(number), int(np.ceil(settings.hours / 24)) * number
        round_settings = replace(
            settings,
            anomalies=settings.anomalies if split == "test" else (),
            start_s=settings.start_s + days * DAY_S,  # no two rounds share a second
        )
        traces = simulate(round_settings, signatures, int(np.random.SeedSequence((seed, number)).generate_state(1)[0]))
        directory, campaign = out / f"round-{number:03d}", f"simulated-{seed}-{number:03d}"
        write_recording(directory, traces, campaign, split)
        spans = [span for trace in traces for span in trace.spans]
        yield SimulatedRound(
            directory,
            campaign,
            split,
            jobs=len({span.job for span in spans}),
            anomalous=len({span.job for span in spans if span.anomaly}),
            thread_s=sum(trace.valid.size for trace in traces),
        )


def write_recording(directory: Path, traces: list[Trace], campaign: str, split: str) -> None:
    """Write one recording with its labels."""
    with Recorder.create(directory, {t.node: t.cpus for t in traces}, campaign=campaign, split=split) as recorder:
        for trace in traces:
            recorder.append(trace)
            for span in trace.spans:
                recorder.label(span)
