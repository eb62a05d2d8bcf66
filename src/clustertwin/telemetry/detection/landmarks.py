"""Known places in a model's embedding: signatures of jobs -> where each kind lies, and how far a thread is from it.

Each kind of job that was ever recorded, healthy or not, is drawn anew from its signature and embedded by the model
in service, so that the places belong to that model and need no labels of the site's own. A job that comes to lie
nearest to a kind that is known to be wrong has drifted there: the reference study's alarm by distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.telemetry.detection.features.inference import evaluate
from clustertwin.telemetry.detection.views.region_distance import Regions
from clustertwin.telemetry.models.model_store import Stored
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment
from clustertwin.telemetry.simulation.anomalies import draw_afflicted, draw_healthy, family
from clustertwin.telemetry.simulation.signature import PEER, Signatures
from clustertwin.telemetry.simulation.stick_breaking import TICKS

JOBS = 16  # of each kind


@dataclass(frozen=True, slots=True)
class Landmarks:
    names: tuple[str, ...]  # a job type, or what went wrong with one
    wrong: tuple[bool, ...]
    centre: NDArray[np.float32]  # (kind, latent)

    def nearest(self, embedding: NDArray[np.float32], most: int = 3) -> tuple[tuple[str, float], ...]:
        """(n, latent) of some threads -> the kinds nearest to their middle, with the distance to each."""
        apart = np.linalg.norm(self.centre - embedding.mean(0), axis=1)
        return tuple((self.names[i], float(apart[i])) for i in np.argsort(apart, kind="stable")[:most])

    def is_wrong(self, name: str) -> bool:
        return name in self.names and self.wrong[self.names.index(name)]

    def regions(self) -> Regions:
        """Those that are wrong, by name."""
        rows = sorted((i for i, wrong in enumerate(self.wrong) if wrong), key=lambda i: self.names[i])
        return Regions(tuple(self.names[i] for i in rows), self.centre[rows])


def find_landmarks(stored: Stored, signatures: Signatures, seed: int = 0) -> Landmarks:
    """The places of every recorded kind; the same seed gives the same places."""
    names, wrong, centres = [], [], []
    for number, (job_type, anomaly) in enumerate(sorted(signatures.kinds)):
        name = anomaly or family(job_type)
        if anomaly.endswith(PEER) or name in names:
            continue
        rng = np.random.default_rng((seed, number))
        # Threads of one job move together: each comes from a job of its own.
        ticks = np.stack([_thread(signatures, job_type, anomaly, rng) for _ in range(JOBS)])
        embedding = evaluate(stored, _moment(ticks))[0]
        names.append(name)
        wrong.append(bool(anomaly))
        centres.append(embedding.mean(0))
    return Landmarks(tuple(names), tuple(wrong), np.array(centres, np.float32))


def _thread(signatures: Signatures, job_type: str, anomaly: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(second, channel) of the first of two threads, the one that is struck where only one is."""
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
