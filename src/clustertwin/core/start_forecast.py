"""When a waiting job starts: the row that the workload half forecasts and the service shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartAnswer:
    """When a job starts, in seconds after Slurm was asked. `basis`: the class of jobs that its run time is from."""

    job: str
    user: str
    p10_s: float
    p50_s: float
    p90_s: float
    likeliest_s: float
    by_limits_s: float
    within_s: float
    within_probability: float
    futures: int
    basis: str
