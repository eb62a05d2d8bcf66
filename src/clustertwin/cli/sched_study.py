"""Wire a study of training sources: options of the command -> logs read, generators fitted, a report written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import numpy as np
import orjson

from clustertwin.cli.output import err
from clustertwin.core.errors import SettingsError
from clustertwin.workload import generators
from clustertwin.workload.formats import read
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.rl.evolve import EvolveSettings
from clustertwin.workload.rl.study import Row, Source, as_html, split, study
from clustertwin.workload.rl.train import TrainSettings
from clustertwin.workload.rl.worth import Rules
from clustertwin.workload.simulator import machine_size

WINDOW = 1024  # jobs in a window to judge on


def run(
    trace: Path,
    out: Path,
    synthetic: Sequence[str],
    generator: Sequence[str],
    times: float,
    backfill: Literal["none", "easy"],
    procs: int,
    unit: Literal["cpus", "nodes"],
    held_out: float,
    stretches: int,
    windows: int,
    seeds: int,
    ppo_rounds: int,
    evolve_rounds: int,
    sequences: int,
    both: bool,
    lenient: bool,
) -> list[Row]:
    """The rows, also written to `out` as study.json and study.html."""
    jobs = read(trace, lenient=lenient)
    learn, judge = split(jobs, held_out, stretches)
    made = {name: _generated(name, learn, times) for name in generator} | dict(
        _named(text, lenient) for text in synthetic
    )
    settings = TrainSettings(ppo_rounds, evolve_rounds, start="order").tried_on(sequences)
    # What sources teach is settled in the ten weights; the last stage, in all of them, would cost most of the time.
    settings = replace(settings, evolve=replace(settings.evolve, sequences=EvolveSettings().sequences))
    rules = Rules(procs or machine_size(jobs, unit), backfill=backfill)
    with err.status("training") as status:
        rows = study(
            learn, judge, made, rules, settings, range(seeds), out, unit, (WINDOW, windows), both,
            lambda name, seed: status.update(f"training on {name}, seed {seed}"),
        )  # fmt: skip
    held = f"{windows} windows of {sum(map(len, judge)):,} jobs"
    facts = {
        "log": trace.name, "learnt from": f"{len(learn):,} jobs", "judged on": held, "stretches": stretches,
        "generated logs": f"{times:g} times as long",
        "machine": f"{rules.procs:,} {unit}", "backfilling": backfill, "seeds": seeds, "PPO rounds": ppo_rounds,
        "evolution rounds": evolve_rounds, "sequences a generation": sequences,
    }  # fmt: skip
    (out / "study.json").write_bytes(orjson.dumps([asdict(row) for row in rows], option=orjson.OPT_INDENT_2))
    (out / "study.html").write_text(as_html(rows, f"Schedulers trained on {trace.name} and its likenesses", facts))
    return rows


def _generated(name: str, learn: Jobs, times: float) -> Source:
    """Logs so many times as long as what the generator has learnt from, another for every seed."""
    fitted = generators.make(name).fit(learn, np.random.default_rng(0))
    return lambda seed: fitted.sample(round(times * len(learn)), np.random.default_rng(seed))


def _named(text: str, lenient: bool) -> tuple[str, Source]:
    name, _, path = text.partition("=")
    if not path:
        raise SettingsError(f"a synthetic log is given as NAME=FILE, not as {text!r}")
    jobs = read(Path(path), lenient=lenient)
    return name, lambda seed: jobs
