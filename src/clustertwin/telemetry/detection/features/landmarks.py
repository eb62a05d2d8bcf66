"""Landmarks in a model's embedding: signatures of jobs -> the centre of each kind of job, and distances to it.

Jobs of each recorded kind, healthy or faulty, are drawn from their signature and embedded by the model, so the
landmarks fit that model and need no labels from the site. A thread that is closest to the landmark of a fault has
drifted there: this is the reference study's alarm by distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.telemetry.detection.features.inference import infer
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment
from clustertwin.telemetry.simulation.anomalies import draw_afflicted, draw_healthy, family
from clustertwin.telemetry.simulation.signature import PEER, Signatures
from clustertwin.telemetry.simulation.stick_breaking import TICKS

JOBS = 16  # drawn of each kind


@dataclass(frozen=True, slots=True)
class Landmarks:
    names: tuple[str, ...]  # a job type, or a fault
    faulty: tuple[bool, ...]
    centre: NDArray[np.float32]  # (kind, latent)

    def nearest(self, embedding: NDArray[np.float32], most: int = 3) -> tuple[tuple[str, float], ...]:
        """(n, latent) of some threads -> the kinds closest to their mean, with the distance to each."""
        distance = np.linalg.norm(self.centre - embedding.mean(0), axis=1)
        return tuple((self.names[i], float(distance[i])) for i in np.argsort(distance, kind="stable")[:most])


def find_landmarks(stored: StoredModel, signatures: Signatures, seed: int = 0) -> Landmarks:
    """A landmark for every recorded kind; the same seed gives the same landmarks."""
    names, faulty, centres = [], [], []
    for number, (job_type, anomaly) in enumerate(sorted(signatures.kinds)):
        name = anomaly or family(job_type)
        if anomaly.endswith(PEER) or name in names:
            continue
        rng = np.random.default_rng((seed, number))
        # The threads of one job are correlated, so each thread is drawn from a separate job.
        ticks = np.stack([_thread(signatures, job_type, anomaly, rng) for _ in range(JOBS)])
        embedding = infer(stored, _moment(ticks))[0]
        names.append(name)
        faulty.append(bool(anomaly))
        centres.append(embedding.mean(0))
    return Landmarks(tuple(names), tuple(faulty), np.array(centres, np.float32))


def _thread(signatures: Signatures, job_type: str, anomaly: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(second, channel) of the first of two threads, which is the faulty one where a fault affects only one."""
    if anomaly:
        return draw_afflicted(signatures, job_type, anomaly, 2, WINDOW_S, 0, rng)[0]
    return draw_healthy(signatures, job_type, 2, WINDOW_S, rng)[0]


def _moment(ticks: NDArray[np.uint8]) -> Moment:
    """Drawn threads as the threads of one job."""
    n, seconds = ticks.shape[:2]
    zero = np.zeros(n, np.int32)
    return Moment(
        end_s=seconds,
        schema=CPU,
        values=(ticks / np.float32(TICKS)).astype(np.float32),
        valid=np.ones((n, seconds), np.bool_),
        nodes=("drawn",),
        node=zero,
        cpu=np.arange(n, dtype=np.int32),
        jobs=("drawn",),
        job=zero,
        age_s=zero + seconds,
    )
