"""A month of a simulated cluster: a day and a seed -> its traces, whose job spans name their anomalies.

The mix of jobs changes, new job types appear, half of the nodes get new hardware, one disk fails slowly, jobs go wrong
on some days, and on a holiday many go wrong while nobody reviews events. `MonthScenario` lists what happens when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.durations import DAY_S
from clustertwin.core.traces import Trace
from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import Signature, Signatures
from clustertwin.telemetry.simulation.simulated_cluster import node_names, simulate
from clustertwin.telemetry.studies.month.daily_faults import let_jobs_go_wrong
from clustertwin.telemetry.studies.month.unseen_programs import FOREIGN, UNSEEN, with_unseen_programs

_NEVER = 10_000  # a day after the last
_FIRST_DAY = -100  # earlier than every simulated day
_IDLE_BY_DESIGN = tuple(name for name, program in UNSEEN.items() if program.other > 0.5)
_WAIT_SPREAD = 0.3  # standard deviation of the logarithm of a job's disk wait
_USER, _SYSTEM, _IOWAIT, _OTHER = (CPU.index(name) for name in ("user", "system", "iowait", "other"))


@dataclass(frozen=True, slots=True)
class MonthScenario:
    nodes: int = 4
    threads: int = 16  # per node
    hours: float = 4.0  # simulated of each day
    start_s: int = 1_767_225_600
    #: (first day, job types from that day on)
    mix: tuple[tuple[int, tuple[str, ...]], ...] = (
        (0, ("np", "good-io", "mpi-2")),
        (6, ("np", "good-io", "mpi-2", "mpi-8")),
        (10, ("np", "good-io", "mpi-8", "render")),
        (20, ("good-io", "mpi-8", "render", "etl")),
    )
    on_disk: tuple[str, ...] = ("good-io", "etl")  # job types that wait for the disk, even a healthy one
    wait: float = 0.04  # mean part of a second that they wait
    new_hardware: int = 15  # the day on which half of the nodes start to account 10 % of user time as system time
    creep_from: int = 3  # the disk of the first node fails slowly after this day
    creep_a_day: float = 0.15  # each day its waits grow by this part of a healthy disk's wait
    anomalies: tuple[str, ...] = ("bad-io", "swap-bursts", "throttled", "hung-job")
    anomalous_every: int = 4  # days
    holiday: int = 26  # the day on which 30 % of the jobs are bad-io and nobody reviews events
    unseen: float = 0.0  # part of the jobs that run programs which were never recorded
    foreign: bool = False  # the usual programs and the idle threads are those of a foreign site as well
    faulty: float = 0.0  # part of the long jobs that go wrong, every day and in any program
    first: Literal["learned", "bundled"] = "learned"  # the first champion has learned five days, or is the shipped one

    def day(self, number: int) -> Day:
        start_s = self.start_s + number * DAY_S
        return Day(f"day-{number:02d}", start_s, start_s + DAY_S)

    def day_number(self, at_s: float) -> int:
        """The number of the day that contains this second."""
        return int((at_s - self.start_s) // DAY_S)

    def disk_creep(self, number: int) -> float:
        """How much longer the waits for the failing disk are on this day: 1.0 means twice as long."""
        return max(0, number - self.creep_from) * self.creep_a_day

    def is_change(self, number: int) -> bool:
        """Does this day bring new job types or new hardware?"""
        return number == self.new_hardware or any(number == first for first, _ in self.mix[1:])

    def last_change(self, number: int) -> int:
        """The last day up to this one that brought a change."""
        return max((day for day in range(number + 1) if self.is_change(day)), default=_FIRST_DAY)

    @property
    def job_types(self) -> tuple[str, ...]:
        """Every job type of the month."""
        types = tuple(dict.fromkeys(name for _, names in self.mix for name in names))
        return (*types, *UNSEEN) if self.unseen else types

    @property
    def failing_node(self) -> str:
        return node_names(self.nodes)[0]


def unseen_month(unseen: float, foreign: bool) -> MonthScenario:
    """A month that begins with the shipped detector: nothing changes but that jobs go wrong every day."""
    usual = tuple(FOREIGN) if foreign else ("np", "good-io", "mpi-2", "mpi-8")
    return MonthScenario(
        mix=((0, usual),),
        on_disk=("good-io",),
        new_hardware=_NEVER,
        creep_from=_NEVER,
        anomalies=(),
        anomalous_every=_NEVER,
        holiday=_NEVER,
        unseen=unseen,
        foreign=foreign,
        faulty=0.1,
        first="bundled",
    )


def simulate_day(scenario: MonthScenario, number: int, signatures: Signatures, seed: int) -> list[Trace]:
    """The traces of this day without the failing disk; spans name the anomalies of jobs."""
    job_types = next((types for first, types in reversed(scenario.mix) if first <= number), scenario.mix[0][1])
    anomalous = number > 0 and number % scenario.anomalous_every == 0
    settings = ClusterSettings(
        scenario.nodes,
        scenario.threads,
        scenario.hours,
        job_types=job_types,
        anomalies=("bad-io",) if number == scenario.holiday else scenario.anomalies if anomalous else (),
        anomaly_ratio=0.3 if number == scenario.holiday else 0.1,
        job_s=(600.0, 2400.0),
        start_s=scenario.day(number).start_s,
        rare=tuple(UNSEEN) if scenario.unseen else (),
        rare_ratio=scenario.unseen,
    )
    known = with_unseen_programs(extended_signatures(signatures), scenario.foreign)
    traces = simulate(settings, known, seed=1000 * (seed + 1) + number)
    if scenario.faulty and number > 0:
        rng = np.random.default_rng((seed, 10, number))
        traces = let_jobs_go_wrong(traces, scenario.faulty, known, _IDLE_BY_DESIGN, rng)
    names = node_names(scenario.nodes)
    renewed = names[scenario.nodes // 2 :] if number >= scenario.new_hardware else ()
    traces = _add_disk_waits(scenario, traces, np.random.default_rng((seed, 9, number - _FIRST_DAY)))
    return [_named(_as_system_time(trace, 0.1) if trace.node in renewed else trace) for trace in traces]


def _named(trace: Trace) -> Trace:
    """A scheduler knows the name of each job: here, its program."""
    return replace(trace, spans=tuple(replace(span, name=span.job_type) for span in trace.spans))


def with_failing_disk(scenario: MonthScenario, traces: Sequence[Trace], creep: float) -> list[Trace]:
    """The same day with a failing disk on the first node: each wait is `1 + creep` times as long.

    Jobs that never wait for the disk are not affected. The work between two waits takes the same time.
    """
    return [_longer_waits(trace, creep) if trace.node == scenario.failing_node else trace for trace in traces]


def extended_signatures(signatures: Signatures) -> Signatures:
    """The recorded job types, and two that were never recorded: `render`, a lighter np, and `etl`, np and good-io."""
    compute, io = signatures.kinds["np", ""], signatures.kinds["good-io", ""]
    etl = replace(io, job_type="etl", quantiles=(compute.quantiles + io.quantiles) / 2)
    render = replace(compute, job_type="render", quantiles=_quarter_idle(compute))
    return replace(signatures, kinds=signatures.kinds | {kind.key: kind for kind in (etl, render)})


def _quarter_idle(signature: Signature) -> NDArray[np.float64]:
    """The quantiles with a quarter of each second moved to `other`."""
    row = signature.order.index(_OTHER)
    quantiles = signature.quantiles.copy()
    quantiles[row] = 0.25 + 0.75 * quantiles[row]
    return quantiles


def _add_disk_waits(scenario: MonthScenario, traces: Sequence[Trace], rng: np.random.Generator) -> list[Trace]:
    """Let jobs that use the disk wait for it. The recorded jobs did not: their files were in the page cache."""
    jobs = sorted({span.job for trace in traces for span in trace.spans if span.job_type in scenario.on_disk})
    mean_wait = dict(zip(jobs, scenario.wait * np.exp(_WAIT_SPREAD * rng.standard_normal(len(jobs))), strict=True))
    waiting = []
    for trace in traces:
        values = trace.values.copy()
        for span in (span for span in trace.spans if span.job in mean_wait):
            rows = np.searchsorted(trace.cpus, span.cpus)
            first, last = (max(round(at_s) - trace.start_s, 0) for at_s in (span.start_s, span.end_s))
            block = values[rows, first:last]  # (cpu, time, channel)
            wait = np.clip(mean_wait[span.job] * rng.gamma(2.0, 0.5, block.shape[:2]), 0, 0.9).astype(np.float32)
            block *= 1 - wait[..., None]
            block[..., _IOWAIT] += wait
            values[rows, first:last] = block
        waiting.append(replace(trace, values=values))
    return waiting


def _as_system_time(trace: Trace, part: float) -> Trace:
    """Account a part of the user time of all threads as system time."""
    values = trace.values.copy()
    moved = values[..., _USER] * np.float32(part)
    values[..., _USER] -= moved
    values[..., _SYSTEM] += moved
    return replace(trace, values=values)


def _longer_waits(trace: Trace, creep: float) -> Trace:
    values = trace.values.copy()
    values[..., _IOWAIT] *= np.float32(1 + creep)
    return replace(trace, values=values / np.maximum(values.sum(-1, keepdims=True), np.float32(1e-6)))
