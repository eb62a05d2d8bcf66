"""The data of a study: recordings or a simulated cluster -> training, validation and test campaigns.

A campaign belongs to exactly one split. Only test campaigns have anomalies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Trace, Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.models.training_data import SPLITS
from clustertwin.telemetry.recording import Recording, find
from clustertwin.telemetry.simulation.anomalies import available_anomalies, family
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

Campaign = tuple[Trace, ...]  # one trace per node


@dataclass(frozen=True, slots=True)
class StudyData:
    """The campaigns of each split, the window length and the strides."""

    name: str
    train: tuple[Campaign, ...]
    validation: tuple[Campaign, ...]
    test: tuple[Campaign, ...]
    length_s: int = 100
    learn_stride_s: int = 100
    test_stride_s: int = 100

    def windows(self, split: str) -> Windows:
        """Every fully valid window of a split that lies in one job or is idle."""
        campaigns: tuple[Campaign, ...] = getattr(self, split)
        stride_s = self.test_stride_s if split == "test" else self.learn_stride_s
        cuts = [
            cut(trace, self.length_s, stride_s, campaign=f"{split}-{i}", split=split)
            for i, campaign in enumerate(campaigns)
            for trace in campaign
        ]
        if not cuts:
            raise SettingsError(f"{self.name}: no {split} campaign")
        windows = Windows.concat(cuts)
        return windows.take((windows.job_type != "mixed") & windows.valid.all(axis=1))

    def normal(self, split: str) -> Windows:
        windows = self.windows(split)
        normal = windows.take(windows.anomaly == "")
        if not len(normal):
            raise SettingsError(
                f"{self.name}: no window of {self.length_s} s lies within a normal job of the {split} campaigns; "
                "try shorter or overlapping windows (--window-s, --stride-s)"
            )
        return normal

    def digest(self) -> str:
        """A hash of all seconds and labels: different data have different digests."""
        digest = hashlib.blake2b(f"{self.length_s} {self.learn_stride_s} {self.test_stride_s}".encode(), digest_size=16)
        for split in SPLITS:
            for trace in (trace for campaign in getattr(self, split) for trace in campaign):
                digest.update(f"{split} {trace.node} {trace.cpus} {trace.start_s} {trace.spans}".encode())
                digest.update(np.ascontiguousarray(trace.values).data)
                digest.update(np.ascontiguousarray(trace.valid).data)
        return digest.hexdigest()


def simulated_data(
    nodes: int = 5, threads: int = 32, hours: float = 5.0, test_hours: float = 4.0, tests: int = 1, seed: int = 1
) -> StudyData:
    """A simulated cluster of the reference's size. Five hours give about 28,000 training windows."""
    signatures = read_signatures()
    healthy = ClusterSettings(nodes=nodes, threads=threads, hours=hours)
    anomalous = replace(healthy, hours=test_hours, anomalies=available_anomalies(signatures))

    def campaign(settings: ClusterSettings, number: int) -> Campaign:
        return tuple(simulate(settings, signatures, seed=seed * 1000 + number))

    return StudyData(
        f"simulated {nodes} × {threads} threads",
        train=(campaign(healthy, 0),),
        validation=(campaign(replace(healthy, hours=test_hours), 1),),
        test=tuple(campaign(anomalous, 2 + i) for i in range(tests)),
    )


def recorded_data(roots: Sequence[Path], length_s: int, stride_s: int) -> StudyData:
    """Recordings by the split of their campaign.

    Recordings without a split are assigned in order: three fifths to training, one to validation, one to test.
    """
    recordings = _open(roots)
    splits: dict[str, list[Campaign]] = {name: [] for name in SPLITS}
    for i, recording in enumerate(recordings):
        fifth = 5 * i // len(recordings)
        by_order = SPLITS[min(2, fifth - 2)] if fifth >= 3 else "train"
        splits[recording.split if recording.split in SPLITS else by_order].append(_campaign(recording))
    if missing := [name for name in SPLITS if not splits[name]]:
        raise SettingsError(
            f"{len(recordings)} recordings, but none for {' and '.join(missing)}: record at least three rounds "
            "(`twin campaign run --rounds 3`), or train on a simulated cluster (`--learn simulated`)"
        )
    train, validation, test = (tuple(splits[name]) for name in SPLITS)
    return StudyData(_names(roots), train, validation, test, length_s, stride_s, stride_s)


def transfer_data(roots: Sequence[Path], cluster: StudyData, length_s: int = 100, stride_s: int = 100) -> StudyData:
    """Training and validation on a simulated cluster, test on all recordings."""
    test = tuple(_campaign(recording) for recording in _open(roots))
    name = f"{_names(roots)}, trained on {cluster.name}"
    return StudyData(name, cluster.train, cluster.validation, test, length_s, length_s, stride_s)


def _open(roots: Sequence[Path]) -> list[Recording]:
    recordings = [Recording.open(directory) for root in roots for directory in find(root)]
    if not recordings:
        raise SettingsError(f"no recordings below {', '.join(map(str, roots))}; make one with `twin campaign run`")
    return recordings


def _campaign(recording: Recording) -> Campaign:
    return tuple(recording.trace(node) for node in recording.nodes)


def _names(roots: Sequence[Path]) -> str:
    return ", ".join(root.name for root in roots)


def job_kinds(windows: Windows) -> NDArray[np.str_]:
    """The kind of job of each window; all sizes of one MPI program are one kind."""
    names, which = np.unique(windows.job_type, return_inverse=True)
    return np.array([family(str(name)) for name in names])[which]
