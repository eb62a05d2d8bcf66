"""Real or synthetic: a log and synthetic versions of it -> schedulers trained on each, judged on real jobs held out.

The last part of the real log is never trained on, by anyone, nor shown to a generator. Every source trains from the
same seeds with the same budget; heuristics stand beside them on the same windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import policy as find_policy
from clustertwin.workload.policies.learned import learned
from clustertwin.workload.rl.train import TrainSettings, train
from clustertwin.workload.rl.worth import Rules, slowdowns
from clustertwin.workload.simulator.intake import Unit, take_in
from clustertwin.workload.simulator.machine import Records

HEURISTICS = ("fcfs", "sjf", "f1", "smallest", "wfp3", "unicep")


@dataclass(frozen=True, slots=True)
class Row:
    """One source of training, or one heuristic, on the held-out windows."""

    name: str
    slowdown: float  # mean over seeds and windows
    low: float
    high: float
    by_seed: tuple[float, ...]  # one for a heuristic
    ratio: float  # to the scheduler trained on the real log


def split(jobs: Jobs, held_out: float = 0.3) -> tuple[Jobs, Jobs]:
    """The part to learn from, and the later part to judge on."""
    if not 0.05 <= held_out <= 0.9:
        raise SettingsError(f"{held_out} of a log cannot be held out: 0.05 to 0.9")
    at = int(len(jobs) * (1 - held_out))
    return jobs.take(slice(0, at)), jobs.take(slice(at, len(jobs)))


def windows(load: Records, length: int, count: int) -> list[Records]:
    """So many windows, evenly spread; they overlap where the load is short."""
    if len(load) < length:
        raise SettingsError(f"{len(load)} jobs are held out, a window has {length}: hold out more")
    return [load[a : a + length] for a in np.linspace(0, len(load) - length, count).astype(int)]


def study(
    learn: Jobs,
    judge: Jobs,
    synthetic: Mapping[str, Jobs],
    rules: Rules,
    settings: TrainSettings,
    seeds: Sequence[int],
    out: Path,
    unit: Unit = "cpus",
    window: tuple[int, int] = (1024, 10),
    both: bool = True,
    report: Callable[[str, int], None] = lambda *_: None,
) -> list[Row]:
    """Train on the real log, on each synthetic one and, if asked, on both; judge on windows (length, count)."""
    real = take_in(learn, rules.procs, rules.gpus, unit).load
    made = {name: take_in(jobs, rules.procs, rules.gpus, unit).load for name, jobs in synthetic.items()}
    sources: dict[str, tuple[Records, tuple[Records, ...]]] = {"real": (real, ())}
    sources |= {name: (load, ()) for name, load in made.items()}
    if both:
        sources |= {f"real + {name}": (real, (load,)) for name, load in made.items()}
    judged = windows(take_in(judge, rules.procs, rules.gpus, unit).load, *window)
    found: dict[str, NDArray[np.float64]] = {}  # (seed, window)
    for name, (load, also) in sources.items():
        weights = []
        for seed in seeds:
            report(name, seed)
            file = out / "policies" / f"{name.replace(' + ', '-and-')}-{seed}.safetensors"
            weights.append(train(load, rules, replace(settings, seed=seed), file, also=also).weights)
        found[name] = slowdowns([learned(w) for w in weights], judged, rules)
    for name in HEURISTICS:
        found[name] = slowdowns([find_policy(name)], judged, rules)
    base = found["real"].mean()
    rng = np.random.default_rng(0)
    return [_row(name, values, float(base), rng) for name, values in found.items()]


def _row(name: str, values: NDArray[np.float64], base: float, rng: np.random.Generator) -> Row:
    """Seeds and windows are both drawn again for the interval."""
    seeds, count = values.shape
    drawn = [values[rng.integers(0, seeds, seeds)][:, rng.integers(0, count, count)].mean() for _ in range(2000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    by_seed = tuple(float(mean) for mean in values.mean(axis=1))
    return Row(name, float(values.mean()), float(low), float(high), by_seed, float(values.mean() / base))


def as_html(rows: Sequence[Row], title: str, facts: Mapping[str, object]) -> str:
    """The table as a page of its own."""
    cells = "".join(
        f"<tr><td>{escape(row.name)}</td><td>{row.slowdown:.2f}</td><td>{row.low:.2f} – {row.high:.2f}</td>"
        f"<td>{row.ratio:.3f}</td><td>{', '.join(f'{value:.2f}' for value in row.by_seed)}</td></tr>"
        for row in rows
    )
    details = "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    title = escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        "<style>body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "td,th{padding:.2rem 1rem .2rem 0;text-align:left}dt{float:left;width:12rem;color:#666}</style>"
        f"<h1>{title}</h1><table><tr><th>trained on, or heuristic</th><th>bounded slowdown</th><th>95 %</th>"
        f"<th>to real</th><th>by seed</th></tr>{cells}</table><dl>{details}</dl></html>"
    )
