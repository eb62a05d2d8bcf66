"""Record this host each second: /proc/stat -> the traces of the nodes that its CPUs stand for."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.counters import MODES, Reading
from clustertwin.telemetry.exporter.cpu import USER_HZ, cpu_lines, parse_cpu_lines
from clustertwin.telemetry.exporter.kernelfile import read_file
from clustertwin.telemetry.rates import RateStream
from clustertwin.telemetry.recording import Recorder


class Sampler:
    """One reading of the kernel per call, shared out among the nodes and appended to the recording."""

    def __init__(self, nodes: Mapping[str, tuple[int, ...]], recorder: Recorder) -> None:
        self._nodes, self._recorder = dict(nodes), recorder
        self._streams = {node: RateStream() for node in nodes}

    def sample(self) -> None:
        reading = read_host()
        for node, cpus in self._nodes.items():
            trace = self._streams[node].push(only(reading, node, cpus))
            if trace is not None:
                self._recorder.append(trace)


def read_host() -> Reading:
    faults: list[str] = []
    ticks = parse_cpu_lines(cpu_lines(read_file("/proc/stat")), faults)
    seconds = np.array([row[: len(MODES)] for row in ticks.values()], dtype=np.float64) / USER_HZ
    return Reading("", time.time(), tuple(ticks), seconds)


def only(reading: Reading, node: str, cpus: tuple[int, ...]) -> Reading:
    """The part of a host's reading that belongs to a node: some of its CPUs, under another name."""
    if missing := set(cpus) - set(reading.cpus):
        raise SettingsError(f"this host has no CPU {', '.join(map(str, sorted(missing)))}")
    rows = [reading.cpus.index(cpu) for cpu in cpus]
    return Reading(node, reading.time_s, cpus, reading.seconds[rows], reading.modes)
