"""How long a night takes: hours, threads -> seconds of each step, so that a site can choose its cadence.

Each size is a night of its own in a scratch home, on a simulated day, with everything a real night does except the
registry. Every architecture finds weights of a night before to go on from, as on any night but the first, and a day
that is too short to learn from is timed all the same.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from clustertwin.core.errors import TwinError
from clustertwin.core.extras import require
from clustertwin.telemetry.campaign.simulated_rounds import write_recording
from clustertwin.telemetry.learning.night.calendar_day import Day
from clustertwin.telemetry.learning.night.day_checks import Limits
from clustertwin.telemetry.learning.night.nightly_cycle import CycleSettings, Site, run
from clustertwin.telemetry.learning.night.step_log import read_document
from clustertwin.telemetry.learning.night.trace_history import Recorded
from clustertwin.telemetry.learning.night.verdicts import Told
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.model_store import save
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

_NODE = 32  # threads
_ANY_DAY = Limits(fewest_windows=1, fewest_moments=1, drift=1.0)


@dataclass(frozen=True, slots=True)
class Timed:
    hours: float
    nodes: int
    threads: int
    windows: int  # usable, of which so many of the settings' limit were trained on
    contestants: int
    cpu_s: float  # of all processes of the night
    seconds: dict[str, float]  # of each step, by the clock
    epochs: dict[str, int] = field(default_factory=dict)  # that the budget gave each challenger

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


def measure(
    hours: Sequence[float],
    threads: Sequence[int],
    architectures: tuple[str, ...],
    progress: Callable[[str, int, int], None] = lambda step, done, of: None,
    settings: CycleSettings = CycleSettings(),
) -> list[Timed]:
    """A night of every size, from recordings on disk."""
    sizes = [(h, n) for n in threads for h in hours]
    rows = []
    for i, (h, n) in enumerate(sizes):
        progress(f"{n} threads × {h:g} h", i, len(sizes))
        mine = replace(settings, architectures=architectures, limits=_ANY_DAY)
        with tempfile.TemporaryDirectory() as scratch:
            rows.append(_time(Path(scratch), h, n, mine))
    return rows


def _time(home: Path, hours: float, threads: int, settings: CycleSettings) -> Timed:
    nodes = max(1, threads // _NODE)
    cluster = ClusterSettings(nodes=nodes, threads=threads // nodes, hours=hours)
    write_recording(home / "recording" / "day", simulate(cluster, read_signatures(), seed=1), "", "")
    for architecture in settings.architectures:
        config, network = find(architecture)
        save(home / "nights" / "2025-12-31" / "challengers" / architecture, architecture, network(config()))
    day = Day("2026-01-01", cluster.start_s, cluster.start_s + max(86_400, int(hours * 3600)))
    before_s = _cpu_s()
    night = run(Site(home, Recorded([home / "recording"]), Told(), settings), day)
    cpu_s = _cpu_s() - before_s
    if night.outcome in ("skipped", "halted"):
        raise TwinError(f"{threads} threads × {hours:g} h: {night.because}")
    census = read_document(home / "nights" / day.name / "gather.json")["result"]
    plan = read_document(home / "nights" / day.name / "plan.json")["result"]
    return Timed(hours, nodes, threads, census["windows"], len(night.contestants), cpu_s, night.seconds, plan["epochs"])


def _cpu_s() -> float:
    """What this process and the workers that ended have used so far."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def draw(rows: Sequence[Timed], path: Path) -> None:
    """Stacked steps, one bar a size."""
    figure = require("matplotlib.figure", "plots").Figure(figsize=(8, 1 + 0.4 * len(rows)), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(rows)
    names = [f"{row.threads} threads × {row.hours:g} h" for row in rows]
    for step in rows[0].seconds:
        seconds = [row.seconds.get(step, 0.0) for row in rows]
        if max(seconds) >= 0.01 * max(row.total_s for row in rows):
            axes.barh(names, seconds, left=left, label=step)
            left = [a + b for a, b in zip(left, seconds, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
