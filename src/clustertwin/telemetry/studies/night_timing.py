"""How long a night takes: hours and threads -> seconds of each step, so that a site can choose its schedule.

Each size is one night in a scratch home, on a simulated day, with every step of a real night except the registry. Every
architecture has weights of an earlier night for its warm start. The limits of a day are lowered, so that short days are
measured as well.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from clustertwin.core import files
from clustertwin.core.errors import TwinError
from clustertwin.core.extras import require
from clustertwin.telemetry.campaign.simulated_rounds import write_recording
from clustertwin.telemetry.learning.night.calendar_day import Day, DayLimits
from clustertwin.telemetry.learning.night.night_run import NightContext, NightSettings
from clustertwin.telemetry.learning.night.nightly_cycle import run_night
from clustertwin.telemetry.learning.night.step_journal import read_document
from clustertwin.telemetry.learning.night.verdicts import FixedVerdicts
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.model_store import save
from clustertwin.telemetry.recording.trace_archive import RecordingArchive
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

_THREADS_PER_NODE = 32
_NO_LIMITS = DayLimits(thread_hours=0.0, fewest_moments=1, drift=1.0)


@dataclass(frozen=True, slots=True)
class NightTiming:
    hours: float
    nodes: int
    threads: int
    windows: int  # usable windows of the day
    contestants: int
    cpu_s: float  # of all processes of the night
    seconds: dict[str, float]  # wall time of each step
    epochs: dict[str, int] = field(default_factory=dict)  # of each challenger

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


def time_nights(
    hours: Sequence[float],
    threads: Sequence[int],
    architectures: tuple[str, ...],
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
    settings: NightSettings = NightSettings(),
) -> list[NightTiming]:
    """One night for every combination of hours and threads, from recordings on disk."""
    sizes = [(length_h, count) for count in threads for length_h in hours]
    timings = []
    for i, (length_h, count) in enumerate(sizes):
        progress(f"{count} threads × {length_h:g} h", i, len(sizes))
        with tempfile.TemporaryDirectory() as scratch:
            unlimited = replace(settings, architectures=architectures, limits=_NO_LIMITS)
            timings.append(_time_night(Path(scratch), length_h, count, unlimited))
    return timings


def _time_night(home: Path, hours: float, threads: int, settings: NightSettings) -> NightTiming:
    nodes = max(1, threads // _THREADS_PER_NODE)
    cluster = ClusterSettings(nodes=nodes, threads=threads // nodes, hours=hours)
    write_recording(home / "recording" / "day", simulate(cluster, read_signatures(), seed=1), "", "")
    for architecture in settings.architectures:
        config, network = find(architecture)
        save(home / "nights" / "2025-12-31" / "challengers" / architecture, architecture, network(config()))
    day = Day("2026-01-01", cluster.start_s, cluster.start_s + max(86_400, int(hours * 3600)))
    context = NightContext(home, RecordingArchive([home / "recording"]), FixedVerdicts(), settings)
    cpu_before_s = _cpu_s()
    night = run_night(context, day)
    cpu_s = _cpu_s() - cpu_before_s
    if night.outcome in ("skipped", "halted"):
        raise TwinError(f"{threads} threads × {hours:g} h: {night.because}")
    census = read_document(home / "nights" / day.name / "gather.json")["result"]
    plan = read_document(home / "nights" / day.name / "plan.json")["result"]
    return NightTiming(
        hours, nodes, threads, census["windows"], len(night.contestants), cpu_s, night.seconds, plan["epochs"]
    )


def _cpu_s() -> float:
    """CPU time of this process and of its workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def draw_timings(timings: Sequence[NightTiming], path: Path) -> None:
    """One stacked bar per size; steps that take less than 1 % of the longest night are not drawn."""
    figure = require("matplotlib.figure", "plots").Figure(figsize=(8, 1 + 0.4 * len(timings)), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(timings)
    names = [f"{timing.threads} threads × {timing.hours:g} h" for timing in timings]
    for step in timings[0].seconds:
        seconds = [timing.seconds.get(step, 0.0) for timing in timings]
        if max(seconds) >= 0.01 * max(timing.total_s for timing in timings):
            axes.barh(names, seconds, left=left, label=step)
            left = [a + b for a, b in zip(left, seconds, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.legend(frameon=False)
    path = path if path.suffix else path.with_suffix(".png")
    files.make_directory(path.parent)
    with files.replacing(path) as out:
        figure.savefig(out, format=path.suffix.removeprefix("."), dpi=110)
