"""Compare training sources: a real log and synthetic logs -> policies trained on each, evaluated on held-out real jobs.

Neither a policy nor a generator sees the held-out part of the real log. All sources have the same seeds and the same
budget, and a generator makes a new log for every seed. The heuristics are evaluated on the same windows.
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

from clustertwin.core.durations import DAY_S
from clustertwin.core.errors import SettingsError
from clustertwin.page import page, table
from clustertwin.workload.jobs import COLUMNS, Jobs
from clustertwin.workload.machine_size import Unit
from clustertwin.workload.policies import find_policy
from clustertwin.workload.policies.learned import learned
from clustertwin.workload.rl.policy_evaluation import mean_slowdowns
from clustertwin.workload.rl.policy_training import TrainSettings, train
from clustertwin.workload.rl.training_sequences import TrainingData
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.simulate_log import SchedulingRules

HEURISTICS = ("fcfs", "sjf", "f1", "smallest", "wfp3", "unicep")

#: seed -> the log that the training with this seed uses
TrainingSource = Callable[[int], Jobs]


@dataclass(frozen=True, slots=True)
class SourceStudySettings:
    """What every source has in common."""

    rules: SchedulingRules
    training: TrainSettings
    seeds: Sequence[int]
    unit: Unit = "cpus"
    window_length: int = 1024  # jobs
    windows: int = 10
    both: bool = True  # also train on the real log together with each synthetic one
    resume: bool = True  # from the policies of an earlier call


@dataclass(frozen=True, slots=True)
class SourceResult:
    """The slowdown of one training source, or of one heuristic, on the held-out windows."""

    name: str
    slowdown: float  # mean over seeds and windows
    low: float
    high: float
    by_seed: tuple[float, ...]  # one value for a heuristic
    ratio: float  # to the policy trained on the real log
    ratio_low: float
    ratio_high: float


def split(jobs: Jobs, held_out: float = 0.3, stretches: int = 1) -> tuple[Jobs, list[Jobs]]:
    """Split a log into a training log and evaluation logs: the end of each of several equal stretches is held out.

    With one stretch, all evaluation jobs come after the training jobs. With several stretches, a machine whose load
    changes over the months is evaluated in all of them.
    """
    if not 0.05 <= held_out <= 0.9:
        raise SettingsError(f"the held-out share of a log is 0.05 to 0.9, not {held_out}")
    if stretches < 1:
        raise SettingsError(f"the number of stretches is 1 or more, not {stretches}")
    ends = np.linspace(0, len(jobs), stretches + 1).astype(int)
    cuts = [begin + int((end - begin) * (1 - held_out)) for begin, end in pairwise(ends.tolist())]
    training = [jobs.take(slice(begin, cut)) for begin, cut in zip(ends[:-1], cuts, strict=True)]
    evaluation = [jobs.take(slice(cut, end)) for cut, end in zip(cuts, ends[1:], strict=True)]
    return join_stretches(training), evaluation


def join_stretches(stretches: Sequence[Jobs]) -> Jobs:
    """Stretches of a log as one log. A gap between two of them is shortened by whole days, to less than a day."""
    submit_s = [stretches[0].submit_s]
    for stretch in stretches[1:]:
        gap_s = stretch.submit_s[0] - submit_s[-1][-1]
        submit_s.append(stretch.submit_s - gap_s // DAY_S * DAY_S)
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in stretches]) for name in COLUMNS}
    return replace(stretches[0], **columns | {"submit_s": np.concatenate(submit_s)})


def evaluation_windows(logs: Sequence[Records], length: int, count: int) -> list[Records]:
    """Windows of `length` jobs, evenly spread over the logs. They overlap if the logs are short."""
    if (shortest := min(map(len, logs))) < length:
        raise SettingsError(f"a window has {length} jobs, but only {shortest} consecutive jobs are held out")
    shares = [len(share) for share in np.array_split(np.arange(count), len(logs))]
    return [
        records[first : first + length]
        for records, share in zip(logs, shares, strict=True)
        for first in np.linspace(0, len(records) - length, share).astype(int)
    ]


def compare_sources(
    training: Jobs,
    evaluation: Sequence[Jobs],
    synthetic: Mapping[str, TrainingSource],
    settings: SourceStudySettings,
    out: Path,
    report: Callable[[str, int], None] = lambda *_: None,
) -> list[SourceResult]:
    """Train on the real log, on each synthetic one and, if set, on both together; evaluate on held-out windows."""
    rules = settings.rules

    def records_of(jobs: Jobs) -> Records:
        return admit(jobs, rules.procs, rules.gpus, settings.unit).records

    def real(seed: int) -> Jobs:
        return training

    sources: dict[str, tuple[TrainingSource, ...]] = {"real": (real,)}
    sources |= {name: (source,) for name, source in synthetic.items()}
    if settings.both:
        sources |= {f"real + {name}": (real, source) for name, source in synthetic.items()}
    windows = evaluation_windows([records_of(log) for log in evaluation], settings.window_length, settings.windows)
    slowdowns: dict[str, NDArray[np.float64]] = {}  # (seed, window)
    for name, logs in sources.items():
        policies = []
        for seed in settings.seeds:
            report(name, seed)
            path = out / "policies" / f"{name.replace(' + ', '-and-')}-{seed}.safetensors"
            records, *further = [records_of(log(seed)) for log in logs]
            data = TrainingData(records, further=further)
            training_settings = replace(settings.training, seed=seed)
            trained = train(data, rules, training_settings, path, resume=settings.resume)
            policies.append(learned(trained.weights))
        slowdowns[name] = mean_slowdowns(policies, windows, rules)
    for name in HEURISTICS:
        slowdowns[name] = mean_slowdowns([find_policy(name)], windows, rules)
    return [summarise(name, values, slowdowns["real"]) for name, values in slowdowns.items()]


def summarise(
    name: str, slowdowns: NDArray[np.float64], real: NDArray[np.float64], resamples: int = 2000
) -> SourceResult:
    """The result of a source from slowdowns, (seed, window). The bootstrap resamples seeds, and windows in pairs."""
    rng = np.random.default_rng(0)
    count = slowdowns.shape[1]
    means = np.empty((resamples, 2))
    for i in range(resamples):
        windows = rng.integers(0, count, count)
        means[i] = [each[rng.integers(0, len(each), len(each))][:, windows].mean() for each in (slowdowns, real)]
    low, high = np.quantile(means[:, 0], [0.025, 0.975])
    ratio_low, ratio_high = np.quantile(means[:, 0] / means[:, 1], [0.025, 0.975])
    return SourceResult(
        name,
        slowdown=float(slowdowns.mean()),
        low=float(low),
        high=float(high),
        by_seed=tuple(float(mean) for mean in slowdowns.mean(axis=1)),
        ratio=float(slowdowns.mean() / real.mean()),
        ratio_low=float(ratio_low),
        ratio_high=float(ratio_high),
    )


def as_html(results: Sequence[SourceResult], title: str, facts: Mapping[str, object]) -> str:
    """The results as an HTML page."""
    columns = ("trained on, or heuristic", "bounded slowdown", "95 %", "to real", "95 %", "by seed")
    rows = [
        (
            result.name, f"{result.slowdown:.2f}", f"{result.low:.2f} – {result.high:.2f}", f"{result.ratio:.3f}",
            f"{result.ratio_low:.3f} – {result.ratio_high:.3f}", ", ".join(f"{value:.2f}" for value in result.by_seed),
        )
        for result in results
    ]  # fmt: skip
    note = "; ".join(f"{name}: {value}" for name, value in facts.items())
    return page(title, f"<h1>{escape(title)}</h1><p class=note>{escape(note)}</p>{table(columns, rows)}")
