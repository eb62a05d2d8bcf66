"""Generators against one real log: log, generators, published files, seeds -> one table, with real against real.

Each generator is fitted once and sampled with every seed. The synthetic logs are kept in a directory, so that you can
inspect them and an interrupted study can continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import orjson

from clustertwin.core import files
from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.engine import each
from clustertwin.page import page, table
from clustertwin.workload.fidelity.measures.arrivals import SCALES
from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.measures.marginals import ks_complement
from clustertwin.workload.fidelity.measures.offered_load import capacity
from clustertwin.workload.fidelity.scorecard import Scorecard, scorecard
from clustertwin.workload.fidelity.yardsticks import yardsticks
from clustertwin.workload.formats import read, write
from clustertwin.workload.generators import make

#: These train for minutes to hours and may be sampled with fewer seeds.
SLOW = ("findiff", "ctgan", "tvae", "copulagan", "realtabformer")

WAIT = "EASY wait, s"


@dataclass(frozen=True, slots=True)
class GeneratorStudySettings:
    """How many synthetic logs per generator, and on how large a machine they are scheduled."""

    seeds: int = 10
    slow_seeds: int | None = None  # for generators in SLOW; default: `seeds`
    procs: int | None = None  # default: the size that the real log states, or its largest job

    def seeds_of(self, generator: str) -> int:
        return self.slow_seeds if self.slow_seeds and generator in SLOW else self.seeds


@dataclass(frozen=True, slots=True)
class GeneratorScores:
    """One row of the table: for each measure, one value per seed."""

    name: str
    kind: str  # yardstick, generator or published
    scores: dict[str, list[float]]
    fit_s: float | None = None
    jobs_per_s: float | None = None

    @property
    def seeds(self) -> int:
        return len(next(iter(self.scores.values())))

    def mean(self, measure: str) -> float:
        return float(np.mean(self.scores[measure])) if measure in self.scores else float("nan")


@dataclass(frozen=True, slots=True)
class GeneratorStudy:
    log: str
    jobs: int
    procs: int
    unit: str
    real: dict[str, float]  # the real log's own value of those measures that have one
    rows: tuple[GeneratorScores, ...] = field(default=())
    refused: dict[str, str] = field(default_factory=dict)  # generators that cannot learn this log, and why

    @property
    def measures(self) -> tuple[str, ...]:
        """In the order in which the rows introduce them."""
        return tuple(dict.fromkeys(measure for row in self.rows for measure in row.scores))

    @property
    def real_row(self) -> GeneratorScores:
        """The real log's own values, as the first row of the table."""
        return GeneratorScores("real", "real", {measure: [value] for measure, value in self.real.items()})

    def document(self) -> dict[str, Any]:
        """The study as plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _ScoringTask:
    """Two logs to score in some process, for one row of the table."""

    row: str
    real: ComparedLog
    synthetic: ComparedLog
    procs: int


@dataclass(frozen=True, slots=True)
class SamplingCost:
    """What fitting and sampling took, if it was measured."""

    fit_s: float | None = None
    jobs_per_s: float | None = None


def synthetic_scores(card: Scorecard, real: ComparedLog, synthetic: ComparedLog) -> dict[str, float]:
    """The measures of the table for a synthetic log."""
    columns = {f"KS {name}": score.ks_complement for name, score in card.marginals.items()}
    for name in ("user", "status"):
        a, b = getattr(real.jobs, name), getattr(synthetic.jobs, name)
        if len(np.unique(a)) > 1 and np.any(b >= 0):
            columns[f"KS {name}"] = ks_complement(a.astype(float), b.astype(float))
    easy = card.scheduler["EASY"].synthetic
    return {
        **columns,
        "lag 1": card.arrivals.autocorrelation[1],
        **{f"Fano {scale}": card.arrivals.fano[scale] for scale in SCALES},
        "load": card.load.synthetic,
        "AUC rows": card.c2st.row_auc,
        "AUC windows": card.c2st.window_auc,
        WAIT: easy.wait_s,
        "EASY slowdown": easy.bounded_slowdown,
        "copies": card.privacy.copy_rate,
        "closest": card.privacy.closest_median,
        "valid": card.validity.share,
    }


def real_scores(card: Scorecard) -> dict[str, float]:
    """The real log's own value of each measure that has one; it is the target."""
    easy = card.scheduler["EASY"].real
    return {
        "lag 1": card.arrivals.autocorrelation_real[1],
        **{f"Fano {scale}": card.arrivals.fano_real[scale] for scale in SCALES},
        "load": card.load.real,
        WAIT: easy.wait_s,
        "EASY slowdown": easy.bounded_slowdown,
        "copies": card.privacy.copy_rate_holdout,
        "closest": card.privacy.closest_median_holdout,
    }


def synthetic_logs(
    real: ComparedLog, name: str, seeds: int, directory: Path, done: Callable[[str], None]
) -> tuple[list[ComparedLog], SamplingCost]:
    """Synthetic logs as long as the real one, and their cost. Logs that exist in `directory` are not made again."""
    paths = [directory / f"{name}-{seed}.parquet" for seed in range(seeds)]
    cost_path = directory / f"{name}.json"
    cost: dict[str, float] = orjson.loads(cost_path.read_bytes()) if cost_path.exists() else {}
    if not all(path.exists() for path in paths):
        files.make_directory(directory)
        began = perf_counter()
        fitted = make(name).fit(real.jobs, np.random.default_rng(0))
        cost["fit_s"] = perf_counter() - began
        for seed, path in enumerate(paths):
            done(f"{name}, seed {seed}")
            if not path.exists():
                began = perf_counter()
                jobs = fitted.sample(len(real), np.random.default_rng(seed))
                cost["jobs_per_s"] = len(jobs) / (perf_counter() - began)
                write(jobs, path)
        files.write(cost_path, orjson.dumps(cost))
    return [ComparedLog(name, read(path)) for path in paths], SamplingCost(cost.get("fit_s"), cost.get("jobs_per_s"))


def study(
    real: ComparedLog,
    generators: Sequence[str],
    published: Sequence[ComparedLog],
    directory: Path,
    settings: GeneratorStudySettings = GeneratorStudySettings(),
    done: Callable[[str], None] = lambda step: None,
) -> GeneratorStudy:
    """Fit, sample and score. `directory` keeps the synthetic logs; `done` is called with each step.

    A generator that refuses the log is left out, unless it is the only one.
    """
    on = capacity(real.jobs, settings.procs)
    references = yardsticks(real, np.random.default_rng(0))
    tasks = [_ScoringTask(pair.name, pair.real, pair.synthetic, on.procs) for pair in references]
    kinds = {task.row: "yardstick" for task in tasks}
    costs: dict[str, SamplingCost] = {}
    refused: dict[str, str] = {}
    for name in generators:
        done(f"fitting {name}")
        try:
            logs, costs[name] = synthetic_logs(real, name, settings.seeds_of(name), directory, done)
        except (TraceError, SettingsError) as error:
            if len(generators) == 1:
                raise
            refused[name] = str(error)
            continue
        kinds[name] = "generator"
        tasks += [_ScoringTask(name, real, log, on.procs) for log in logs]
    for log in published:
        row = f"{log.name} (published)"
        kinds[row] = "published"
        tasks.append(_ScoringTask(row, real, log, on.procs))
    done(f"scoring {len(tasks)} logs")
    results = each(_score, tasks, done=lambda index, _: done(f"scored {tasks[index].row}"))
    scores: dict[str, dict[str, list[float]]] = {row: {} for row in kinds}
    for task, (values, _) in zip(tasks, results, strict=True):
        for measure, value in values.items():
            scores[task.row].setdefault(measure, []).append(value)
    rows = []
    for row, kind in kinds.items():
        cost = costs.get(row, SamplingCost())
        rows.append(GeneratorScores(row, kind, scores[row], cost.fit_s, cost.jobs_per_s))
    # The first yardsticks compare halves; the longest real side is the complete log.
    longest = max(range(len(tasks)), key=lambda i: len(tasks[i].real))
    return GeneratorStudy(real.name, len(real), on.procs, on.unit, results[longest][1], tuple(rows), refused)


def _score(task: _ScoringTask) -> tuple[dict[str, float], dict[str, float]]:
    card = scorecard(task.real, task.synthetic, task.row, task.procs)
    return synthetic_scores(card, task.real, task.synthetic), real_scores(card)


def cell(row: GeneratorScores, measure: str) -> str:
    """Mean over the seeds, with the smallest and the largest value.

    >>> cell(GeneratorScores("x", "generator", {"lag 1": [0.25, 0.75]}), "lag 1")
    '0.500 (0.250–0.750)'
    """
    values = row.scores.get(measure)
    if not values:
        return ""
    text = [f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 10 else f"{value:.3f}"
            for value in (float(np.mean(values)), min(values), max(values))]  # fmt: skip
    return text[0] if len(values) == 1 else f"{text[0]} ({text[1]}–{text[2]})"


def parts(measures: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """What the measures ask, in an order for readers: question, how to read its figures, its measures."""
    dynamics = [
        measure for start in ("EASY", "load", "lag", "Fano") for measure in measures if measure.startswith(start)
    ]
    marginals = [measure for measure in measures if measure.startswith("KS ")]
    rest = [measure for measure in measures if measure not in marginals and measure not in dynamics]
    return [
        ("Does a scheduler behave the same?", "The nearer to the row of the real log, the better. "
         "Waits are simulated.", dynamics),
        ("Are the distributions the same?", "KS complement: 1 is the same distribution.", marginals),
        ("Can a classifier tell the logs apart, and are jobs copied?",
         "AUC: 0.5 is chance, 1 is certain. Copies and closest of the real log compare one half of it with the other.",
         rest),
    ]  # fmt: skip


def in_words(study: GeneratorStudy) -> str:
    """The generator whose mean wait under EASY is nearest to that of the real log."""
    waits = {row.name: float(np.mean(row.scores[WAIT])) for row in study.rows
             if row.kind not in ("real", "yardstick") and row.scores.get(WAIT)}  # fmt: skip
    real = study.real_row.scores.get(WAIT)
    if not waits or not real:
        return ""
    nearest = min(waits, key=lambda name: abs(waits[name] - real[0]))
    return (
        f"The mean simulated wait under EASY of {nearest} is nearest to that of the real log: {waits[nearest]:,.0f} s, "
        f"real {real[0]:,.0f} s."
    )


def study_page(study: GeneratorStudy) -> str:
    """The study as one self-contained HTML page."""
    rows = (study.real_row, *study.rows)
    shaded = sum(row.kind in ("real", "yardstick") for row in rows)
    note = (
        f"{study.jobs:,} jobs; schedules are simulated on {study.procs:,} {study.unit}. Each figure is the mean over "
        "the seeds, with the smallest and the largest. Shaded rows: the real log, and real against real."
    )
    note += "".join(f" Without {name}: {reason}." for name, reason in study.refused.items())
    title = f"{study.log}: generators"
    body = [f"<h1>{escape(title)}</h1><p>{escape(in_words(study))}</p><p class=note>{escape(note)}</p>"]
    for question, reading, measures in parts(study.measures):
        cells = [(row.name, row.seeds, *(cell(row, measure) for measure in measures)) for row in rows]
        heading = f"<h2>{escape(question)}</h2><p class=note>{escape(reading)}</p>"
        body.append(heading + table(["", "seeds", *measures], cells, shaded))
    return page(title, "".join(body))
