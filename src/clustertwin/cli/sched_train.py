"""Wire a training: options of the command -> a log read, jobs imagined where asked, a policy trained and written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from clustertwin.cli.sched_progress import training_bar
from clustertwin.core.errors import SettingsError
from clustertwin.engine import Engine
from clustertwin.workload.formats import read
from clustertwin.workload.rl.imagined import imagined
from clustertwin.workload.rl.train import Trained, TrainSettings, ranges, train
from clustertwin.workload.rl.worth import Rules
from clustertwin.workload.simulator import machine_size
from clustertwin.workload.simulator.intake import take_in


def run(
    trace: Path,
    out: Path,
    backfill: Literal["none", "easy"],
    procs: int,
    unit: Literal["cpus", "nodes"],
    settings: TrainSettings,
    hold_out: Sequence[str],
    generator: str,
    generated: int,
    real: bool,
    engine: Engine,
    restart: bool,
    lenient: bool,
) -> Trained:
    """Train on the log, on what a generator makes of it, or on both."""
    if not real and not generator:
        raise SettingsError("--no-real leaves nothing to train on: name a --generator")
    jobs, held_out = read(trace, lenient=lenient), ranges(hold_out)
    size = procs or machine_size(jobs, unit)
    made = [imagined(jobs, held_out, generator, generated, settings.seed)] if generator else []
    loads = [take_in(log, size, unit=unit).load for log in ([jobs] if real else []) + made]
    with training_bar(settings) as report:
        return train(
            loads[0], Rules(size, backfill=backfill), settings, out, held_out if real else (), report, not restart,
            also=loads[1:], engine=engine,
        )  # fmt: skip
