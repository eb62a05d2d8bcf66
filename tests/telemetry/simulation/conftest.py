"""Small signatures, for tests that need no recording."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.telemetry.simulation.anomalies import ANOMALIES
from clustertwin.telemetry.simulation.barrier import Barrier
from clustertwin.telemetry.simulation.signature import FREQUENCIES, NORMAL_SCORES, Signature, Signatures


def flat(job_type: str, anomaly: str, low: tuple[float, ...], high: tuple[float, ...]) -> Signature:
    """White noise; the shares of user, system and iowait are about uniform between low and high."""
    quantiles = np.stack([np.linspace(a, b, len(NORMAL_SCORES)) for a, b in zip(low, high, strict=True)])
    white = np.broadcast_to(np.eye(3, dtype=np.complex128), (FREQUENCIES, 3, 3))
    return Signature(
        job_type=job_type,
        anomaly=anomaly,
        order=(0, 1, 2, 3),
        quantiles=quantiles,
        shared=np.zeros((FREQUENCIES, 3, 3), np.complex128),
        own=white.copy(),
        trend=np.zeros(3),
        start=np.array([[0.2, 0.2, 0.2, 0.4]]),
        end=np.array([[0.0, 0.0, 0.0, 1.0]]),
        jobs=1,
        thread_s=100,
    )


@pytest.fixture(scope="session")
def signatures() -> Signatures:
    """Distinct kinds: np computes, good-io mixes, bad-io waits, idle does nothing."""
    kinds = [
        flat("idle", "", (0, 0, 0), (0.02, 0.01, 0)),
        flat("np", "", (0.9, 0, 0), (1, 0.5, 0)),
        flat("good-io", "", (0.4, 0.3, 0), (0.6, 0.6, 0.5)),
        flat("mpi-2", "", (0.8, 0.9, 0), (1, 1, 0)),
        flat("bad-io", "bad-io", (0, 0, 0.9), (0.1, 0.1, 1)),
        flat("np", "throttled", (0.6, 0, 0), (0.7, 0.3, 0)),
    ]
    barrier = Barrier((0.3, 1.2), np.array([0.98, 0.02, 0, 0]), np.array([0.5, 0.5, 0, 0]))
    return Signatures({kind.key: kind for kind in kinds}, barrier, {"command": "by hand"})


@pytest.fixture(scope="session")
def drawable(signatures: Signatures) -> tuple[str, ...]:
    """The anomalies that these signatures can draw, by name."""
    recorded = {anomaly for _, anomaly in signatures.kinds}
    return tuple(name for name, row in ANOMALIES.items() if row.effect is not None or name in recorded)
