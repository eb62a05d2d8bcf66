"""What a study is made on: recordings or a simulated cluster -> training, validation and test campaigns.

A campaign belongs wholly to one part. Only the test part has anomalies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Trace, Windows
from clustertwin.telemetry.campaign.simulation.anomalies import family, possible
from clustertwin.telemetry.campaign.simulation.cluster import simulate
from clustertwin.telemetry.campaign.simulation.demand import ClusterSettings
from clustertwin.telemetry.campaign.simulation.signature import read_signatures
from clustertwin.telemetry.gather import SPLITS
from clustertwin.telemetry.recording import Recording, find
from clustertwin.telemetry.windows import cut

Campaign = tuple[Trace, ...]  # the nodes of one campaign


@dataclass(frozen=True, slots=True)
class Data:
    """Campaigns by part, and how long a window is."""

    name: str
    train: tuple[Campaign, ...]
    validation: tuple[Campaign, ...]
    test: tuple[Campaign, ...]
    length_s: int = 100

    def windows(self, part: str) -> Windows:
        """Every window of a part that is wholly valid and of one job, or idle."""
        campaigns: tuple[Campaign, ...] = getattr(self, part)
        cuts = [
            cut(trace, self.length_s, campaign=f"{part}-{i}", split=part)
            for i, campaign in enumerate(campaigns)
            for trace in campaign
        ]
        if not cuts:
            raise SettingsError(f"{self.name}: no campaign for {part}")
        windows = Windows.concat(cuts)
        return windows.take((windows.job_type != "mixed") & windows.valid.all(axis=1))

    def normal(self, part: str) -> Windows:
        windows = self.windows(part)
        return windows.take(windows.anomaly == "")


def simulated(
    nodes: int = 5, threads: int = 32, hours: float = 5.0, test_hours: float = 4.0, tests: int = 1, seed: int = 1
) -> Data:
    """The reference's cluster: five hours give about 28,000 training windows. Each test is a fresh campaign."""
    signatures = read_signatures()
    healthy = ClusterSettings(nodes=nodes, threads=threads, hours=hours)
    struck = replace(healthy, hours=test_hours, anomalies=possible(signatures))

    def one(settings: ClusterSettings, number: int) -> Campaign:
        return tuple(simulate(settings, signatures, seed=seed * 1000 + number))

    return Data(
        f"simulated {nodes} × {threads} threads",
        train=(one(healthy, 0),),
        validation=(one(replace(healthy, hours=test_hours), 1),),
        test=tuple(one(struck, 2 + i) for i in range(tests)),
    )


def recorded(roots: Sequence[Path], length_s: int = 100) -> Data:
    """Recordings by the split their campaign gave them; without one, the last fifth of them is for testing."""
    found = [Recording.open(directory) for root in roots for directory in find(root)]
    if not found:
        raise SettingsError(f"no recordings below {', '.join(map(str, roots))}; make one with `twin campaign run`")
    parts: dict[str, list[Campaign]] = {name: [] for name in SPLITS}
    for i, recording in enumerate(found):
        loose = SPLITS[min(2, 5 * i // len(found) - 2)] if 5 * i // len(found) >= 3 else "train"
        campaign = tuple(recording.trace(node) for node in recording.nodes)
        parts[recording.split if recording.split in SPLITS else loose].append(campaign)
    if missing := [name for name in SPLITS if not parts[name]]:
        raise SettingsError(
            f"{len(found)} recordings, none of them for {' and '.join(missing)}: record at least three rounds "
            "(`twin campaign run --rounds 3`)"
        )
    name = ", ".join(root.name for root in roots)
    train, validation, test = (tuple(parts[name]) for name in SPLITS)
    return Data(name, train, validation, test, length_s)


def kinds(windows: Windows) -> NDArray[np.str_]:
    """Each window's kind of job: sizes of one MPI program are one kind."""
    names, which = np.unique(windows.job_type, return_inverse=True)
    return np.array([family(str(name)) for name in names])[which]
