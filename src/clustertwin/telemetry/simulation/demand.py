"""The jobs that users of a simulated cluster submit: settings, rng -> one placement request at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.simulation.anomalies import ANOMALIES, family
from clustertwin.telemetry.simulation.placement import PlacementRequest
from clustertwin.telemetry.simulation.signature import IDLE

DEFAULT_JOB_TYPES = ("np", "good-io", "mpi-2", "mpi-4", "mpi-8", "mpi-16", "mpi-32")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The size of the cluster, the length of the recording and the mix of jobs."""

    nodes: int = 5
    threads: int = 32  # per node
    hours: float = 2.0
    job_types: tuple[str, ...] = DEFAULT_JOB_TYPES  # types too wide for the cluster are left out
    anomalies: tuple[str, ...] = ()
    anomaly_ratio: float = 0.2  # of jobs, if `anomalies` is not empty
    idle_ratio: float = 0.1  # of requests: they keep threads idle for the length of a job
    job_s: tuple[float, float] = (600.0, 3600.0)  # run times are log-uniform in this range
    gap_s: float = 30.0  # a thread's mean pause between two jobs
    start_s: int = 1_767_225_600  # epoch second of the first sample
    rare: tuple[str, ...] = ()  # more job types, which run on one node
    rare_ratio: float = 0.0  # of the normal jobs

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.threads < 1 or self.hours * 3600 < 1:
            raise SettingsError(
                f"a cluster needs at least one node, one thread and one second; "
                f"got {self.nodes} nodes of {self.threads} threads for {self.hours} h"
            )
        if not 1 <= self.job_s[0] <= self.job_s[1]:
            raise SettingsError(f"invalid range of job lengths: {self.job_s[0]} to {self.job_s[1]} s")
        if unknown := [name for name in self.anomalies if name not in ANOMALIES]:
            raise SettingsError(f"unknown anomaly {unknown[0]!r}; available anomalies: {', '.join(ANOMALIES)}")
        if not self.fitting_job_types():
            raise SettingsError(
                f"none of the job types {', '.join(self.job_types)} fits into {self.nodes} × {self.threads} threads"
            )

    @property
    def seconds(self) -> int:
        return int(self.hours * 3600)

    def fitting_job_types(self, families: tuple[str, ...] = ()) -> list[str]:
        """The job types that fit into the cluster, optionally only those of some families."""
        types = [name for name in self.job_types if not families or family(name) in families]
        return [name for name in types if _fits(self.nodes, self.threads, mpi_width(name))]


def draw_request(settings: ClusterSettings, rng: np.random.Generator) -> PlacementRequest:
    """The next job, normal or anomalous, or an idle period."""
    length = round(np.exp(rng.uniform(*np.log(settings.job_s))))
    job_type, anomaly = IDLE, ""
    if rng.random() >= settings.idle_ratio:
        anomalies = [name for name in settings.anomalies if _affected_types(settings, name)]
        if anomalies and rng.random() < settings.anomaly_ratio:
            anomaly = str(rng.choice(anomalies))
        candidates = _affected_types(settings, anomaly) if anomaly else settings.fitting_job_types()
        if settings.rare and not anomaly and rng.random() < settings.rare_ratio:
            candidates = list(settings.rare)
        # All programs are equally frequent, whatever the number of their sizes.
        program = rng.choice(sorted({family(name) for name in candidates}))
        job_type = str(rng.choice([name for name in candidates if family(name) == program]))
    # The width of other jobs is a power of two, up to a full node.
    width = mpi_width(job_type) or int(2 ** rng.integers(0, settings.threads.bit_length()))
    return PlacementRequest(job_type, width, length, anomaly)


def mpi_width(job_type: str) -> int:
    """The number of threads in a name such as `mpi-8`; 0 for other types."""
    return int(job_type.rpartition("-")[2]) if family(job_type) == "mpi" else 0


def _affected_types(settings: ClusterSettings, anomaly: str) -> list[str]:
    """The job types of the cluster that an anomaly can affect; `bad-io` is a job type of its own."""
    job_types = ANOMALIES[anomaly].job_types
    return ["bad-io"] if job_types == ("bad-io",) else settings.fitting_job_types(job_types)


def _fits(nodes: int, threads: int, width: int) -> bool:
    return any(width % used == 0 and width // used <= threads for used in range(1, nodes + 1))
