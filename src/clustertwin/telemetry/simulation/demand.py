"""What users of a simulated cluster ask for: settings, rng -> one request after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.simulation.anomalies import ANOMALIES, family
from clustertwin.telemetry.simulation.placement import Request
from clustertwin.telemetry.simulation.signature import IDLE

JOB_TYPES = ("np", "good-io", "mpi-2", "mpi-4", "mpi-8", "mpi-16", "mpi-32")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How large, for how long, and what runs; lengths of jobs are drawn evenly on a logarithmic scale."""

    nodes: int = 5
    threads: int = 32  # per node
    hours: float = 2.0
    job_types: tuple[str, ...] = JOB_TYPES  # those too wide for the cluster are left out
    anomalies: tuple[str, ...] = ()
    anomaly_ratio: float = 0.2  # of jobs, where there are anomalies
    idle_ratio: float = 0.1  # of requests: threads left alone for as long as a job
    job_s: tuple[float, float] = (600.0, 3600.0)
    gap_s: float = 30.0  # a thread's mean pause between two jobs
    start_s: int = 1_767_225_600  # epoch second of the first sample

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.threads < 1 or self.hours * 3600 < 1:
            raise SettingsError(f"no cluster: {self.nodes} nodes of {self.threads} threads for {self.hours} h")
        if not 1 <= self.job_s[0] <= self.job_s[1]:
            raise SettingsError(f"jobs cannot last from {self.job_s[0]} to {self.job_s[1]} s")
        if unknown := [name for name in self.anomalies if name not in ANOMALIES]:
            raise SettingsError(f"unknown anomaly {unknown[0]!r}; there are {', '.join(ANOMALIES)}")
        if not self.fitting():
            raise SettingsError(f"none of {', '.join(self.job_types)} fits {self.nodes} × {self.threads} threads")

    @property
    def seconds(self) -> int:
        return int(self.hours * 3600)

    def fitting(self, families: tuple[str, ...] = ()) -> list[str]:
        """The job types, of these families or of all, that the cluster can hold."""
        wanted = [name for name in self.job_types if not families or family(name) in families]
        return [name for name in wanted if _holds(self.nodes, self.threads, mpi_width(name))]


def ask(settings: ClusterSettings, rng: np.random.Generator) -> Request:
    """The next job, healthy or not, or a pause."""
    length = round(np.exp(rng.uniform(*np.log(settings.job_s))))
    job_type, anomaly = IDLE, ""
    if rng.random() >= settings.idle_ratio:
        struck = [name for name in settings.anomalies if _victims(settings, name)]
        if struck and rng.random() < settings.anomaly_ratio:
            anomaly = str(rng.choice(struck))
        candidates = _victims(settings, anomaly) if anomaly else settings.fitting()
        # Programs come equally often, whatever the number of their sizes.
        program = rng.choice(sorted({family(name) for name in candidates}))
        job_type = str(rng.choice([name for name in candidates if family(name) == program]))
    # Jobs without a size in their name take a power of two, up to a node.
    width = mpi_width(job_type) or int(2 ** rng.integers(0, settings.threads.bit_length()))
    return Request(job_type, width, length, anomaly)


def mpi_width(job_type: str) -> int:
    """The number of threads in the name `mpi-8`; 0 for other types."""
    return int(job_type.rpartition("-")[2]) if family(job_type) == "mpi" else 0


def _victims(settings: ClusterSettings, anomaly: str) -> list[str]:
    """The job types that an anomaly can strike here; `bad-io` is a job of its own."""
    strikes = ANOMALIES[anomaly].strikes
    return ["bad-io"] if strikes == ("bad-io",) else settings.fitting(strikes)


def _holds(nodes: int, threads: int, width: int) -> bool:
    return any(width % across == 0 and width // across <= threads for across in range(1, nodes + 1))
