"""The shipped golden set: simulated anomalies that never change -> the recall of a detector for each kind of anomaly.

It is drawn from the signatures of recorded jobs with a fixed seed. A home uses it as long as it has no healthy day of
its own to impose faults on (`site_golden_set`). It has a hash, because two results are comparable only if they were
measured on the same set.
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

#: Never change these: every stored result was measured on the set that they generate.
SEED = 20_260_101
SETTINGS = ClusterSettings(nodes=3, threads=16, hours=1.5, anomaly_ratio=0.6, job_s=(900.0, 2400.0))
_EVERY_S = 300


@dataclass(frozen=True, slots=True)
class GoldenSet:
    moments: tuple[Moment, ...]
    anomaly: tuple[NDArray[np.str_], ...]  # (thread,) of each moment: its kind; "" normal, "mixed" not counted
    sha256: str

    @property
    def kinds(self) -> tuple[str, ...]:
        labels = {str(kind) for of_moment in self.anomaly for kind in np.unique(of_moment)}
        return tuple(sorted(labels - {"", "mixed"}))

    def without_jobs(self) -> GoldenSet:
        """The set as a site without job labels sees it. It is another set, with another hash."""
        without = tuple(
            replace(moment, jobs=(), job=np.full_like(moment.job, -1), age_s=np.full_like(moment.age_s, LENGTH_S))
            for moment in self.moments
        )
        return GoldenSet(without, self.anomaly, hashlib.sha256(f"{self.sha256} without jobs".encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class GoldenSetResult:
    """What a detector finds in the golden set. Windows without a score are not counted."""

    recall: dict[str, float]  # kind of anomaly -> alarming part of its windows, or the part of its cases that is seen
    false_alarms: float  # alarming part of the normal windows, or of the healthy jobs
    golden: str  # hash of the set
    paired: bool = False  # each case was compared with the same job without the fault

    @property
    def mean_recall(self) -> float:
        return float(np.mean(list(self.recall.values()))) if self.recall else 0.0

    @property
    def informedness(self) -> float:
        """Mean recall minus the false-alarm rate (Youden's J): 0 for a detector that alarms on everything.

        In paired cases an alarm on the healthy job already counts as a fault that is not seen.
        """
        return self.mean_recall - (0.0 if self.paired else self.false_alarms)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "mean": self.mean_recall, "informedness": self.informedness}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> GoldenSetResult:
        return cls(document["recall"], document["false_alarms"], document["golden"], document.get("paired", False))


@cache
def standard_golden_set() -> GoldenSet:
    """The set that a site uses until it has one of its own."""
    return simulated_golden_set(SETTINGS, SEED, read_signatures())


def simulated_golden_set(settings: ClusterSettings, seed: int, signatures: Signatures) -> GoldenSet:
    """A few nodes for each anomaly that the signatures describe, so that rare kinds count as much as common ones."""
    traces = []
    for i, kind in enumerate(available_anomalies(signatures)):
        cluster = simulate(replace(settings, anomalies=(kind,)), signatures, seed + i)
        traces += [_prefixed(trace, f"{kind}/") for trace in cluster]
    return labelled_golden_set(traces)


def labelled_golden_set(traces: Sequence[Trace]) -> GoldenSet:
    """A set from traces whose job spans name their anomalies, such as those of a recorded campaign.

    The healthy peers of an anomalous thread behave differently too. Whether they should alarm is undefined, so they
    are not counted.
    """
    kept, anomaly, sha256 = [], [], hashlib.sha256()
    for moment, windows in moments(traces, every_s=_EVERY_S):
        undefined = (windows.job_type == "mixed") | np.char.endswith(windows.anomaly, "/peer")
        labels = np.where(undefined, "mixed", windows.anomaly)
        kept.append(moment)
        anomaly.append(labels)
        for array in (moment.values, moment.valid, moment.job, labels):
            sha256.update(np.ascontiguousarray(array).tobytes())
    return GoldenSet(tuple(kept), tuple(anomaly), sha256.hexdigest())


def evaluate_on_golden_set(detector: Detector, golden: GoldenSet) -> GoldenSetResult:
    """Recall and false alarms at the detector's own threshold."""
    score = np.concatenate([detector.score(moment).score for moment in golden.moments])
    anomaly = np.concatenate(golden.anomaly)
    known = ~np.isnan(score)
    alarming = score > detector.threshold
    recall = {}
    for kind in golden.kinds:
        rows = known & (anomaly == kind)
        recall[kind] = float(alarming[rows].mean()) if rows.any() else 0.0
    normal = known & (anomaly == "")
    return GoldenSetResult(recall, float(alarming[normal].mean()) if normal.any() else 0.0, golden.sha256)


def _prefixed(trace: Trace, prefix: str) -> Trace:
    """Prefix node and job names, so that several clusters can be used as one."""
    spans = [replace(span, node=prefix + span.node, job=prefix + span.job) for span in trace.spans]
    return replace(trace, node=prefix + trace.node, spans=tuple(spans))
