"""Record this host every second: kernel counters -> traces of the nodes to which its CPUs are assigned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.rates import RateStream
from clustertwin.telemetry.ingest.sources.local_host import Host
from clustertwin.telemetry.recording import Recorder


class Sampler:
    """Reads the kernel once per call, divides the reading among the nodes and appends it to the recording."""

    def __init__(self, nodes: Mapping[str, tuple[int, ...]], recorder: Recorder, node_channels: bool = False) -> None:
        self._host, self._recorder = Host(jobs=False), recorder
        self._nodes = {node: (cpus, RateStream(wide=node_channels)) for node, cpus in nodes.items()}

    def sample(self) -> None:
        for reading in self._host.readings():
            for node, (cpus, stream) in self._nodes.items():
                trace = stream.push(part_of(reading, node, cpus))
                if trace is not None:
                    self._recorder.append(trace)


def part_of(reading: NodeReading, node: str, cpus: tuple[int, ...]) -> NodeReading:
    """The part of a host's reading that belongs to a node: some of its CPUs, under another name."""
    if missing := set(cpus) - set(reading.cpus):
        raise SettingsError(f"this host has no CPU {', '.join(map(str, sorted(missing)))}")
    rows = [reading.cpus.index(cpu) for cpu in cpus]
    return replace(reading, node=node, cpus=cpus, seconds=reading.seconds[rows])
