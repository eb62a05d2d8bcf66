"""The golden set: labelled anomalies that never change -> how much of each kind a detector sees.

It is drawn from the signatures of recorded jobs with a fixed seed, and carries a hash: two detections may be compared
only if they were measured on the same set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Trace
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.moments.moment import LENGTH_S, Moment, moments
from clustertwin.telemetry.simulation.anomalies import available_anomalies
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import Signatures, read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

#: Never change these: every past detection was measured on what they give.
SEED = 20_260_101
SETTINGS = ClusterSettings(nodes=3, threads=16, hours=1.5, anomaly_ratio=0.6, job_s=(900.0, 2400.0))
_EVERY_S = 300


@dataclass(frozen=True, slots=True)
class Golden:
    moments: tuple[Moment, ...]
    anomaly: tuple[NDArray[np.str_], ...]  # (thread,) of each moment: its kind; "" normal, "mixed" nobody can say
    sha256: str

    @property
    def kinds(self) -> tuple[str, ...]:
        found = {str(kind) for labels in self.anomaly for kind in np.unique(labels)}
        return tuple(sorted(found - {"", "mixed"}))

    def without_jobs(self) -> Golden:
        """As a site sees it where nobody says which job holds a thread: a set of its own, with a hash of its own."""
        seen = tuple(
            replace(one, jobs=(), job=np.full_like(one.job, -1), age_s=np.full_like(one.age_s, LENGTH_S))
            for one in self.moments
        )
        return Golden(seen, self.anomaly, hashlib.sha256(f"{self.sha256} without jobs".encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class Detection:
    """Of the windows of each kind, the part that alarms; unknown ones are not counted."""

    recall: dict[str, float]
    false_alarms: float  # the part of normal windows that alarms
    golden: str  # hash of the set

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.recall.values()))) if self.recall else 0.0

    @property
    def sight(self) -> float:
        """What is seen beyond what alarms anyway: who alarms at everything has a recall of one and sees nothing."""
        return self.mean - self.false_alarms

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "mean": self.mean, "sight": self.sight}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Detection:
        return cls(plain["recall"], plain["false_alarms"], plain["golden"])


@cache
def standard() -> Golden:
    """The set that comes with clustertwin."""
    return drawn(SETTINGS, SEED, read_signatures())


def drawn(settings: ClusterSettings, seed: int, signatures: Signatures) -> Golden:
    """Some nodes for each anomaly that these signatures know, so that rare kinds count as much as common ones."""
    traces = []
    for i, kind in enumerate(available_anomalies(signatures)):
        mine = simulate(replace(settings, anomalies=(kind,)), signatures, seed + i)
        traces += [_renamed(trace, f"{kind}/") for trace in mine]
    return labelled(traces)


def labelled(traces: Sequence[Trace]) -> Golden:
    """A set from traces whose spans name what went wrong, such as a recorded campaign's.

    Healthy peers of an afflicted thread look different too, but whether they should alarm is a matter of taste: they
    count neither way.
    """
    taken, anomaly, whole = [], [], hashlib.sha256()
    for moment, windows in moments(traces, every_s=_EVERY_S):
        unclear = (windows.job_type == "mixed") | np.char.endswith(windows.anomaly, "/peer")
        labels = np.where(unclear, "mixed", windows.anomaly)
        taken.append(moment)
        anomaly.append(labels)
        for array in (moment.values, moment.valid, moment.job, labels):
            whole.update(np.ascontiguousarray(array).tobytes())
    return Golden(tuple(taken), tuple(anomaly), whole.hexdigest())


def detect(detector: Detector, golden: Golden) -> Detection:
    """Measure a detector at its own threshold."""
    score = np.concatenate([detector.score(moment).score for moment in golden.moments])
    anomaly = np.concatenate(golden.anomaly)
    known = ~np.isnan(score)
    alarming = score > detector.threshold
    recall = {kind: float(alarming[mine].mean()) for kind in golden.kinds if (mine := known & (anomaly == kind)).any()}
    normal = known & (anomaly == "")
    return Detection(recall, float(alarming[normal].mean()) if normal.any() else 0.0, golden.sha256)


def _renamed(trace: Trace, prefix: str) -> Trace:
    """Nodes and jobs of several clusters as those of one, without two of the same name."""
    spans = [replace(span, node=prefix + span.node, job=prefix + span.job) for span in trace.spans]
    return replace(trace, node=prefix + trace.node, spans=tuple(spans))
