"""Real or synthetic: a log and synthetic versions of it -> schedulers trained on each, judged on real jobs held out.

The held-out part of the real log is never trained on, by anyone, nor shown to a generator. Every source trains from the
same seeds with the same budget; a generator makes another log for every seed. Heuristics stand beside them on the same
windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.page import page, table
from clustertwin.workload.jobs import COLUMNS, Jobs
from clustertwin.workload.policies import policy as find_policy
from clustertwin.workload.policies.learned import learned
from clustertwin.workload.rl.train import TrainSettings, train
from clustertwin.workload.rl.worth import Rules, slowdowns
from clustertwin.workload.simulator.intake import Unit, take_in
from clustertwin.workload.simulator.machine import Records

HEURISTICS = ("fcfs", "sjf", "f1", "smallest", "wfp3", "unicep")

_DAY_S = 86_400

#: The synthetic log that the training of this seed gets.
Source = Callable[[int], Jobs]


@dataclass(frozen=True, slots=True)
class Row:
    """One source of training, or one heuristic, on the held-out windows."""

    name: str
    slowdown: float  # mean over seeds and windows
    low: float
    high: float
    by_seed: tuple[float, ...]  # one for a heuristic
    ratio: float  # to the scheduler trained on the real log
    ratio_low: float
    ratio_high: float


def split(jobs: Jobs, held_out: float = 0.3, stretches: int = 1) -> tuple[Jobs, list[Jobs]]:
    """The part to learn from, in one log, and the end of each of so many equal stretches to judge on.

    What is judged on comes after what was learnt from; with several stretches also before, so that a machine whose load
    changes with the months is judged in all of them.
    """
    if not 0.05 <= held_out <= 0.9:
        raise SettingsError(f"{held_out} of a log cannot be held out: 0.05 to 0.9")
    if stretches < 1:
        raise SettingsError(f"a log has one stretch or more, not {stretches}")
    ends = np.linspace(0, len(jobs), stretches + 1).astype(int)
    cuts = [begin + int((end - begin) * (1 - held_out)) for begin, end in pairwise(ends.tolist())]
    learnt = [jobs.take(slice(begin, cut)) for begin, cut in zip(ends[:-1], cuts, strict=True)]
    judged = [jobs.take(slice(cut, end)) for cut, end in zip(cuts, ends[1:], strict=True)]
    return joined(learnt), judged


def joined(stretches: Sequence[Jobs]) -> Jobs:
    """Stretches of a log as one: each later one moves up by whole days, until less than a day lies before it."""
    submit_s = [stretches[0].submit_s]
    for stretch in stretches[1:]:
        gap_s = stretch.submit_s[0] - submit_s[-1][-1]
        submit_s.append(stretch.submit_s - gap_s // _DAY_S * _DAY_S)
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in stretches]) for name in COLUMNS}
    return replace(stretches[0], **columns | {"submit_s": np.concatenate(submit_s)})


def windows(loads: Sequence[Records], length: int, count: int) -> list[Records]:
    """So many windows, evenly spread over these loads; they overlap where the loads are short."""
    if (shortest := min(map(len, loads))) < length:
        raise SettingsError(f"{shortest} jobs in a row are held out, a window has {length}: hold out more")
    shares = [len(share) for share in np.array_split(np.arange(count), len(loads))]
    return [
        load[a : a + length]
        for load, share in zip(loads, shares, strict=True)
        for a in np.linspace(0, len(load) - length, share).astype(int)
    ]


def study(
    learn: Jobs,
    judge: Sequence[Jobs],
    synthetic: Mapping[str, Source],
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

    def load(jobs: Jobs) -> Records:
        return take_in(jobs, rules.procs, rules.gpus, unit).load

    def real(seed: int) -> Jobs:
        return learn

    sources: dict[str, tuple[Source, ...]] = {"real": (real,), **{name: (made,) for name, made in synthetic.items()}}
    if both:
        sources |= {f"real + {name}": (real, made) for name, made in synthetic.items()}
    judged = windows([load(part) for part in judge], *window)
    found: dict[str, NDArray[np.float64]] = {}  # (seed, window)
    for name, parts in sources.items():
        weights = []
        for seed in seeds:
            report(name, seed)
            file = out / "policies" / f"{name.replace(' + ', '-and-')}-{seed}.safetensors"
            first, *also = [load(source(seed)) for source in parts]
            weights.append(train(first, rules, replace(settings, seed=seed), file, also=also).weights)
        found[name] = slowdowns([learned(w) for w in weights], judged, rules)
    for name in HEURISTICS:
        found[name] = slowdowns([find_policy(name)], judged, rules)
    return [row(name, values, found["real"]) for name, values in found.items()]


def row(name: str, values: NDArray[np.float64], real: NDArray[np.float64], drawn: int = 2000) -> Row:
    """One row from slowdowns, (seed, window). For the intervals seeds and windows are drawn again, windows in pairs."""
    rng = np.random.default_rng(0)
    count = values.shape[1]
    means = np.empty((drawn, 2))
    for i in range(drawn):
        some = rng.integers(0, count, count)
        means[i] = [each[rng.integers(0, len(each), len(each))][:, some].mean() for each in (values, real)]
    low, high = np.quantile(means[:, 0], [0.025, 0.975])
    ratio_low, ratio_high = np.quantile(means[:, 0] / means[:, 1], [0.025, 0.975])
    by_seed = tuple(float(mean) for mean in values.mean(axis=1))
    ratio = float(values.mean() / real.mean())
    return Row(name, float(values.mean()), float(low), float(high), by_seed, ratio, float(ratio_low), float(ratio_high))


def as_html(rows: Sequence[Row], title: str, facts: Mapping[str, object]) -> str:
    """The table as a page of its own."""
    heads = ("trained on, or heuristic", "bounded slowdown", "95 %", "to real", "95 %", "by seed")
    lines = [
        (
            entry.name, f"{entry.slowdown:.2f}", f"{entry.low:.2f} – {entry.high:.2f}", f"{entry.ratio:.3f}",
            f"{entry.ratio_low:.3f} – {entry.ratio_high:.3f}", ", ".join(f"{value:.2f}" for value in entry.by_seed),
        )
        for entry in rows
    ]  # fmt: skip
    note = "; ".join(f"{name}: {value}" for name, value in facts.items())
    return page(title, f"<h1>{escape(title)}</h1><p class=note>{escape(note)}</p>{table(heads, lines)}")
