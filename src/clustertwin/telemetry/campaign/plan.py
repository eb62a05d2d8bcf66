"""Plan a round: job types, CPUs, lengths and a seed -> jobs in random order, with their threads, length and onset."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.catalogue import ANOMALOUS_TYPES, DEFAULT_TYPES, find_type

#: The splits of successive rounds, repeated: the first three rounds cover all splits, and three of five are training.
SPLIT_CYCLE = ("train", "validation", "test", "train", "train")
_ONSET = (0.05, 0.2)  # an anomaly with an onset begins after this fraction of its job


def split_of(number: int) -> str:
    """The split of a whole round, so that no job and no second is in two splits.

    >>> [split_of(number) for number in range(6)]
    ['train', 'validation', 'test', 'train', 'train', 'train']
    """
    return SPLIT_CYCLE[number % len(SPLIT_CYCLE)]


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """The jobs of a campaign. The same settings give the same plan."""

    rounds: int = 3
    seed: int = 0
    shortest_s: float = 105.0  # long enough for one window of 100 s
    longest_s: float = 150.0
    types: tuple[str, ...] = DEFAULT_TYPES
    anomalies: bool = False  # add all anomalous types to test rounds; training and validation stay normal
    settle_s: float = 3.0  # pause between two jobs on the same CPU, without a label
    node_channels: bool = False  # also record the channels of the node

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise SettingsError(f"a campaign needs at least one round, got {self.rounds}")
        if not 0 < self.shortest_s <= self.longest_s:
            raise SettingsError(f"invalid range of job lengths: {self.shortest_s:g} to {self.longest_s:g} s")
        if not self.types:
            raise SettingsError("a campaign needs at least one job type")
        for name in self.types:
            find_type(name)

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"types": list(self.types)}


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job of a round, before CPUs are assigned to it."""

    name: str  # unique within the round, e.g. `03-np`
    type: str
    threads: int
    seconds: float
    seed: int
    onset_s: float | None = None


@dataclass(frozen=True, slots=True)
class AvailableCpus:
    """The CPUs of a host or a cluster, the CPUs of one node, and the sizes that jobs can have."""

    cpus: int
    cpus_of_node: int
    sizes: tuple[int, ...]

    @classmethod
    def host(cls, cpus: int) -> AvailableCpus:
        """Sizes are powers of two from two threads on; one thread only if the host has no more."""
        return cls(cpus, cpus, tuple(2**k for k in range(1, cpus.bit_length()) if 2**k <= cpus) or (1,))

    @classmethod
    def cluster(cls, nodes: int, cpus_of_node: int) -> AvailableCpus:
        """Sizes are one whole node, two, four, …"""
        counts = [2**k for k in range(nodes.bit_length()) if 2**k <= nodes]
        return cls(nodes * cpus_of_node, cpus_of_node, tuple(count * cpus_of_node for count in counts))

    def sizes_of(self, name: str, rng: np.random.Generator) -> list[int]:
        """The numbers of threads of a type: `mpi-N` runs once in each size, other types in one random size."""
        row = find_type(name)
        if name == "idle":
            return [self.cpus]
        if name.startswith("mpi-") and name != "mpi-N":
            ranks = int(name.removeprefix("mpi-"))
            if ranks not in self.sizes:
                raise SettingsError(f"{name} does not fit: jobs can have {', '.join(map(str, self.sizes))} threads")
            return [ranks]
        # Without ranks, an anomaly of one CPU would occur on every node of the job: keep the job on one node.
        most = self.cpus_of_node if row.one_thread and not row.mpi else self.cpus
        fitting = [size for size in self.sizes if size <= most and not (row.mpi and size == 1)]
        if name == "mpi-N" or not fitting:
            return fitting
        return [int(rng.choice(fitting))]


def plan_round(settings: CampaignSettings, number: int, available: AvailableCpus) -> list[PlannedJob]:
    """The jobs of one round, in the order of their start."""
    rng = np.random.default_rng((settings.seed, number))
    types = list(settings.types)
    if settings.anomalies and split_of(number) == "test":
        types += [name for name in ANOMALOUS_TYPES if name not in types]
    jobs = [(name.replace("mpi-N", f"mpi-{size}"), size) for name in types for size in available.sizes_of(name, rng)]
    planned = []
    for place, index in enumerate(rng.permutation(len(jobs))):
        name, threads = jobs[index]
        seconds = round(float(rng.uniform(settings.shortest_s, settings.longest_s)), 1)
        onset_s = round(seconds * float(rng.uniform(*_ONSET)), 1)
        seed = int(rng.integers(2**31))
        onset = onset_s if find_type(name).has_onset else None
        planned.append(PlannedJob(f"{place + 1:02d}-{name}", name, threads, seconds, seed, onset))
    return planned
