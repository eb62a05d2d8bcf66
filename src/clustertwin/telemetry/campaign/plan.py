"""Plan a round: types, CPUs, lengths and a seed -> jobs in random order, each with its threads, length and onset."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.catalogue import ANOMALIES, NORMAL, find_type
from clustertwin.telemetry.campaign.splits import split_of

_ONSET = (0.05, 0.2)  # an anomaly with an onset begins after this part of its job


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """What is to run. The same settings and seed give the same rounds."""

    rounds: int = 3
    seed: int = 0
    shortest_s: float = 105.0  # every job gives at least one window of 100 s
    longest_s: float = 150.0
    types: tuple[str, ...] = NORMAL
    anomalies: bool = False  # all anomalous types too, in test rounds: models learn and calibrate on healthy ones
    settle_s: float = 3.0  # of quiet between jobs, which belongs to none
    node_channels: bool = False  # record memory_used and io_pressure too

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise SettingsError(f"{self.rounds} rounds are none")
        if not 0 < self.shortest_s <= self.longest_s:
            raise SettingsError(f"jobs cannot take from {self.shortest_s:g} to {self.longest_s:g} s")
        if not self.types:
            raise SettingsError("a campaign needs at least one job type")
        for name in self.types:
            find_type(name)

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"types": list(self.types)}


@dataclass(frozen=True, slots=True)
class Planned:
    """One job of a round, before it has a place."""

    name: str  # unique within the round, e.g. `03-np`
    type: str
    threads: int
    seconds: float
    seed: int
    onset_s: float | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What a host or a cluster offers to jobs: all its CPUs, those of one node, and the sizes that jobs may have."""

    cpus: int
    cpus_of_node: int
    sizes: tuple[int, ...]

    @classmethod
    def host(cls, cpus: int) -> Room:
        """Powers of two from two threads on; one thread only where there is no other."""
        return cls(cpus, cpus, tuple(2**k for k in range(1, cpus.bit_length()) if 2**k <= cpus) or (1,))

    @classmethod
    def cluster(cls, nodes: int, cpus_of_node: int) -> Room:
        """One whole node, two, four, …"""
        counts = [2**k for k in range(nodes.bit_length()) if 2**k <= nodes]
        return cls(nodes * cpus_of_node, cpus_of_node, tuple(count * cpus_of_node for count in counts))

    def sizes_of(self, name: str, rng: np.random.Generator) -> list[int]:
        """How many threads a type takes here: `mpi-N` comes once in each size, others in one size by lot."""
        row = find_type(name)
        if name == "idle":
            return [self.cpus]
        if name.startswith("mpi-") and name != "mpi-N":
            ranks = int(name.removeprefix("mpi-"))
            if ranks not in self.sizes:
                raise SettingsError(f"no {name} here: jobs may take {', '.join(map(str, self.sizes))} threads")
            return [ranks]
        # What strikes one CPU of a program without ranks strikes it on every node: keep it on one.
        most = self.cpus_of_node if row.one_thread and not row.mpi else self.cpus
        fitting = [size for size in self.sizes if size <= most and not (row.mpi and size == 1)]
        if name == "mpi-N" or not fitting:
            return fitting
        return [int(rng.choice(fitting))]


def plan_round(settings: CampaignSettings, number: int, room: Room) -> list[Planned]:
    """The jobs of one round, in the order in which they are to start."""
    rng = np.random.default_rng((settings.seed, number))
    wanted = list(settings.types)
    if settings.anomalies and split_of(number) == "test":
        wanted += [name for name in ANOMALIES if name not in wanted]
    jobs = [(name.replace("mpi-N", f"mpi-{size}"), size) for name in wanted for size in room.sizes_of(name, rng)]
    planned = []
    for place, index in enumerate(rng.permutation(len(jobs))):
        name, threads = jobs[index]
        seconds = round(float(rng.uniform(settings.shortest_s, settings.longest_s)), 1)
        onset_s = round(seconds * float(rng.uniform(*_ONSET)), 1)
        seed = int(rng.integers(2**31))
        onset = onset_s if find_type(name).onset else None
        planned.append(Planned(f"{place + 1:02d}-{name}", name, threads, seconds, seed, onset))
    return planned
