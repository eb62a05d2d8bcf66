"""What a study is made on: recordings or a simulated cluster -> training, validation and test campaigns.

A campaign belongs wholly to one part. Only the test part has anomalies.
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

Campaign = tuple[Trace, ...]  # the nodes of one campaign


@dataclass(frozen=True, slots=True)
class Data:
    """Campaigns by part, how long a window is, and how many seconds later the next begins."""

    name: str
    train: tuple[Campaign, ...]
    validation: tuple[Campaign, ...]
    test: tuple[Campaign, ...]
    length_s: int = 100
    learn_stride_s: int = 100
    test_stride_s: int = 100

    def stride_s(self, part: str) -> int:
        return self.test_stride_s if part == "test" else self.learn_stride_s

    def windows(self, part: str) -> Windows:
        """Every window of a part that is wholly valid and of one job, or idle."""
        campaigns: tuple[Campaign, ...] = getattr(self, part)
        cuts = [
            cut(trace, self.length_s, self.stride_s(part), campaign=f"{part}-{i}", split=part)
            for i, campaign in enumerate(campaigns)
            for trace in campaign
        ]
        if not cuts:
            raise SettingsError(f"{self.name}: no campaign for {part}")
        windows = Windows.concat(cuts)
        return windows.take((windows.job_type != "mixed") & windows.valid.all(axis=1))

    def normal(self, part: str) -> Windows:
        windows = self.windows(part)
        normal = windows.take(windows.anomaly == "")
        if not len(normal):
            raise SettingsError(
                f"{self.name}: no window of {self.length_s} s lies wholly in a normal job of the {part} campaigns; "
                "shorter windows, or more of them (--window-s, --stride-s), may"
            )
        return normal

    def digest(self) -> str:
        """A name for these very seconds and labels: other data, another name."""
        found = hashlib.blake2b(f"{self.length_s} {self.learn_stride_s} {self.test_stride_s}".encode(), digest_size=16)
        for part in SPLITS:
            for trace in (trace for campaign in getattr(self, part) for trace in campaign):
                found.update(f"{part} {trace.node} {trace.cpus} {trace.start_s} {trace.spans}".encode())
                found.update(np.ascontiguousarray(trace.values).data)
                found.update(np.ascontiguousarray(trace.valid).data)
        return found.hexdigest()


def simulated(
    nodes: int = 5, threads: int = 32, hours: float = 5.0, test_hours: float = 4.0, tests: int = 1, seed: int = 1
) -> Data:
    """The reference's cluster: five hours give about 28,000 training windows. Each test is a fresh campaign."""
    signatures = read_signatures()
    healthy = ClusterSettings(nodes=nodes, threads=threads, hours=hours)
    struck = replace(healthy, hours=test_hours, anomalies=available_anomalies(signatures))

    def one(settings: ClusterSettings, number: int) -> Campaign:
        return tuple(simulate(settings, signatures, seed=seed * 1000 + number))

    return Data(
        f"simulated {nodes} × {threads} threads",
        train=(one(healthy, 0),),
        validation=(one(replace(healthy, hours=test_hours), 1),),
        test=tuple(one(struck, 2 + i) for i in range(tests)),
    )


def recorded(roots: Sequence[Path], length_s: int = 100, stride_s: int = 100) -> Data:
    """Recordings by the split their campaign gave them; without one, the last fifth of them is for testing."""
    found = _open(roots)
    parts: dict[str, list[Campaign]] = {name: [] for name in SPLITS}
    for i, recording in enumerate(found):
        loose = SPLITS[min(2, 5 * i // len(found) - 2)] if 5 * i // len(found) >= 3 else "train"
        parts[recording.split if recording.split in SPLITS else loose].append(_campaign(recording))
    if missing := [name for name in SPLITS if not parts[name]]:
        raise SettingsError(
            f"{len(found)} recordings, none of them for {' and '.join(missing)}: record at least three rounds "
            "(`twin campaign run --rounds 3`), or learn from a simulated cluster (`--learn simulated`)"
        )
    train, validation, test = (tuple(parts[name]) for name in SPLITS)
    return Data(_named(roots), train, validation, test, length_s, stride_s, stride_s)


def transferred(roots: Sequence[Path], cluster: Data, length_s: int = 100, stride_s: int = 100) -> Data:
    """Learn from a simulated cluster, be tested on every recording: does what was simulated hold in reality?"""
    test = tuple(_campaign(recording) for recording in _open(roots))
    name = f"{_named(roots)}, learnt from {cluster.name}"
    return Data(name, cluster.train, cluster.validation, test, length_s, length_s, stride_s)


def _open(roots: Sequence[Path]) -> list[Recording]:
    found = [Recording.open(directory) for root in roots for directory in find(root)]
    if not found:
        raise SettingsError(f"no recordings below {', '.join(map(str, roots))}; make one with `twin campaign run`")
    return found


def _campaign(recording: Recording) -> Campaign:
    return tuple(recording.trace(node) for node in recording.nodes)


def _named(roots: Sequence[Path]) -> str:
    return ", ".join(root.name for root in roots)


def kinds(windows: Windows) -> NDArray[np.str_]:
    """Each window's kind of job: sizes of one MPI program are one kind."""
    names, which = np.unique(windows.job_type, return_inverse=True)
    return np.array([family(str(name)) for name in names])[which]
