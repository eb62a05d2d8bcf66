"""A month in the life of a simulated cluster: day, seed -> its traces, and which threads were truly wrong when.

The mix of jobs drifts, new kinds of jobs appear, half of the nodes get new hardware, one node's disk fails slowly, on
some days jobs go wrong, and once many do while nobody looks. Everything that happens, and when, stands in `World`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Trace
from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import Signature, Signatures
from clustertwin.telemetry.simulation.simulated_cluster import node_names, simulate

DAY_S = 86_400
_FIRST_DAY = -100  # no day is before it
_UNLIKE = 0.3  # of the logarithm: how much more or less one job waits than another
_USER, _SYSTEM, _IOWAIT, _OTHER = (CPU.index(name) for name in ("user", "system", "iowait", "other"))


@dataclass(frozen=True, slots=True)
class World:
    nodes: int = 4
    threads: int = 16  # of each
    hours: float = 4.0  # of each day are simulated
    start_s: int = 1_767_225_600
    #: (from this day on, these job types)
    mix: tuple[tuple[int, tuple[str, ...]], ...] = (
        (0, ("np", "good-io", "mpi-2")),
        (6, ("np", "good-io", "mpi-2", "mpi-8")),
        (10, ("np", "good-io", "mpi-8", "render")),
        (20, ("good-io", "mpi-8", "render", "etl")),
    )
    on_disk: tuple[str, ...] = ("good-io", "etl")  # who waits for a disk now and then, a sound one too …
    wait: float = 0.04  # … for so much of a second, some jobs more and some less
    new_hardware: int = 15  # day: the second half of the nodes accounts a tenth of user time as system time
    creep_from: int = 3  # day: the first node's disk begins to fail …
    creep_a_day: float = 0.15  # … and each day every wait for it takes so much of a sound disk's wait longer
    anomalies: tuple[str, ...] = ("bad-io", "swap-bursts", "throttled", "hung-job")
    anomalous_every: int = 4  # days
    holiday: int = 26  # day on which three jobs in ten are bad-io, and nobody is there to vet anything

    def day(self, number: int) -> Day:
        start_s = self.start_s + number * DAY_S
        return Day(f"day-{number:02d}", start_s, start_s + DAY_S)

    def number(self, at_s: float) -> int:
        """The day that this second is in."""
        return int((at_s - self.start_s) // DAY_S)

    def creep(self, number: int) -> float:
        return max(0, number - self.creep_from) * self.creep_a_day

    def brings_new(self, number: int) -> bool:
        """Does this day show what no day before did: kinds of jobs, hardware?"""
        return number == self.new_hardware or any(number == first for first, _ in self.mix[1:])

    def changed(self, number: int) -> int:
        """The last day until this one that brought something new."""
        return max((day for day in range(number + 1) if self.brings_new(day)), default=_FIRST_DAY)

    @property
    def creeping_node(self) -> str:
        return node_names(self.nodes)[0]


def live(world: World, number: int, signatures: Signatures, seed: int) -> list[Trace]:
    """What the cluster did on this day, without the failing disk; spans say what was wrong with jobs."""
    types = next((types for first, types in reversed(world.mix) if first <= number), world.mix[0][1])
    ill = number > 0 and number % world.anomalous_every == 0
    settings = ClusterSettings(
        world.nodes,
        world.threads,
        world.hours,
        job_types=types,
        anomalies=("bad-io",) if number == world.holiday else world.anomalies if ill else (),
        anomaly_ratio=0.3 if number == world.holiday else 0.1,
        job_s=(600.0, 2400.0),
        start_s=world.day(number).start_s,
    )
    traces = simulate(settings, widened(signatures), seed=1000 * (seed + 1) + number)
    names = node_names(world.nodes)
    shift = {name: 0.1 for name in names[world.nodes // 2 :] if number >= world.new_hardware}
    traces = _on_disk(world, traces, np.random.default_rng((seed, 9, number - _FIRST_DAY)))
    return [_moved(trace, _SYSTEM, shift.get(trace.node, 0.0)) for trace in traces]


def fail(world: World, traces: Sequence[Trace], creep: float) -> list[Trace]:
    """The same day with a disk on the first node whose every wait takes so much longer: 1.0, twice as long.

    Who never waits feels nothing, and the work between two waits takes as long as ever.
    """
    return [_waiting(trace, creep) if trace.node == world.creeping_node else trace for trace in traces]


def widened(signatures: Signatures) -> Signatures:
    """The recorded kinds, and two that nobody recorded: `render` computes more lightly, `etl` reads and computes."""
    np_, io = signatures.kinds["np", ""], signatures.kinds["good-io", ""]
    etl = replace(io, job_type="etl", quantiles=(np_.quantiles + io.quantiles) / 2)
    render = replace(np_, job_type="render", quantiles=_lighter(np_))
    return replace(signatures, kinds=signatures.kinds | {kind.key: kind for kind in (etl, render)})


def _lighter(kind: Signature) -> NDArray[np.float64]:
    """A quarter of each second is spent on nothing, and the rest as ever."""
    share = kind.order.index(_OTHER)
    out = kind.quantiles.copy()
    out[share] = 0.25 + 0.75 * out[share]
    return out


def _on_disk(world: World, traces: Sequence[Trace], rng: np.random.Generator) -> list[Trace]:
    """Jobs that read and write wait for it. The recorded ones did not: their files lay in memory."""
    jobs = sorted({span.job for trace in traces for span in trace.spans if span.job_type in world.on_disk})
    level = dict(zip(jobs, world.wait * np.exp(_UNLIKE * rng.standard_normal(len(jobs))), strict=True))
    waiting = []
    for trace in traces:
        values = trace.values.copy()
        for span in (span for span in trace.spans if span.job in level):
            rows = np.searchsorted(trace.cpus, span.cpus)
            a, b = (max(round(at_s) - trace.start_s, 0) for at_s in (span.start_s, span.end_s))
            mine = values[rows, a:b]
            part = np.clip(level[span.job] * rng.gamma(2.0, 0.5, mine.shape[:2]), 0, 0.9).astype(np.float32)
            mine *= 1 - part[..., None]
            mine[..., _IOWAIT] += part
            values[rows, a:b] = mine
        waiting.append(replace(trace, values=values))
    return waiting


def _moved(trace: Trace, to: int, part: float) -> Trace:
    """A part of the user time of all threads is accounted elsewhere."""
    if part <= 0:
        return trace
    values = trace.values.copy()
    moved = values[..., _USER] * np.float32(min(part, 0.9))
    values[..., _USER] -= moved
    values[..., to] += moved
    return replace(trace, values=values)


def _waiting(trace: Trace, creep: float) -> Trace:
    values = trace.values.copy()
    values[..., _IOWAIT] *= np.float32(1 + creep)
    return replace(trace, values=values / np.maximum(values.sum(-1, keepdims=True), np.float32(1e-6)))
