"""The cluster of `twin demo`: three simulated nodes on which one job hangs -> a recording and what happens in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.campaign.simulated_rounds import write_recording
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.faulty_job import JobFault, with_fault
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

#: Every job runs through the half hour, so that the only change is the fault, and its event is open at the end.
SETTINGS = ClusterSettings(
    nodes=3, threads=8, hours=0.5, job_types=("np", "good-io", "mpi-8"), job_s=(1800.0, 1900.0), gap_s=10.0
)
MPI = "mpi-8"
FAULT = "hung-job"
#: The fault begins after five minutes of usual work, the longest time that a view looks at, and a little more.
ONSET_S = 360
SEED = 1  # its first jobs are one of each type


@dataclass(frozen=True, slots=True)
class DemoStory:
    """What happens in the recording: which job hangs, where, and when."""

    directory: Path
    settings: ClusterSettings
    jobs: int
    victim: JobSpan
    fault: JobFault

    def clock(self, time_s: float) -> str:
        """A time of the recording as minutes and seconds since its start."""
        minutes, seconds = divmod(max(0, int(time_s - self.settings.start_s)), 60)
        return f"{minutes}:{seconds:02d}"


def write_demo(directory: Path, seed: int = SEED) -> DemoStory:
    """Simulate the cluster and write its recording to a new directory."""
    signatures = read_signatures(None)
    traces = simulate(SETTINGS, signatures, seed)
    spans = [span for trace in traces for span in trace.spans]
    victim = next(span for span in spans if span.job_type == MPI)
    fault = JobFault(victim.job, FAULT, SETTINGS.start_s + ONSET_S)
    write_recording(directory, with_fault(traces, fault, signatures, seed), "demo", "test")
    return DemoStory(directory, SETTINGS, len({span.job for span in spans}), victim, fault)
