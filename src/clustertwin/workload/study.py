"""Generators against one real log: log, generators, published files, seeds -> one table with real against real beside.

Each generator is fitted once and sampled with every seed; the synthetic logs are kept, so that a study that was stopped
goes on where it was, and anyone can look at what was scored.
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

from clustertwin.engine import each
from clustertwin.page import page as document
from clustertwin.workload.fidelity.load import capacity
from clustertwin.workload.fidelity.marginals import ks_complement
from clustertwin.workload.fidelity.sample import Sample
from clustertwin.workload.fidelity.scorecard import Scorecard, scorecard
from clustertwin.workload.fidelity.yardsticks import yardsticks
from clustertwin.workload.formats import read, write
from clustertwin.workload.generators import make

#: These train for minutes to hours, and may be sampled with fewer seeds.
SLOW = ("findiff", "ctgan", "tvae", "copulagan", "realtabformer")
SCALES = (5, 20, 100)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: every measure, one value a seed."""

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
class Study:
    log: str
    jobs: int
    procs: int
    unit: str
    real: dict[str, float]  # the real log's own value of those measures that have one
    rows: tuple[Row, ...] = field(default=())

    @property
    def measures(self) -> tuple[str, ...]:
        """In the order of the first generator or yardstick that has them."""
        return tuple(dict.fromkeys(measure for row in self.rows for measure in row.scores))

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two logs to be scored, somewhere."""

    row: str
    real: Sample
    synthetic: Sample
    procs: int


def scores(card: Scorecard, real: Sample, synthetic: Sample) -> dict[str, float]:
    """The measures of the table."""
    found = {f"KS {name}": score.ks_complement for name, score in card.marginals.items()}
    for name in ("user", "status"):
        a, b = getattr(real.jobs, name), getattr(synthetic.jobs, name)
        if len(np.unique(a)) > 1 and np.any(b >= 0):
            found[f"KS {name}"] = ks_complement(a.astype(float), b.astype(float))
    easy = card.scheduler["EASY"].synthetic
    return {
        **found,
        "lag 1": card.arrivals.autocorrelation[1],
        **{f"Fano {scale}": card.arrivals.fano[scale] for scale in SCALES},
        "load": card.load.synthetic,
        "AUC rows": card.c2st.row_auc,
        "AUC windows": card.c2st.window_auc,
        "EASY wait, s": easy.wait_s,
        "EASY slowdown": easy.bounded_slowdown,
        "copies": card.privacy.copy_rate,
        "closest": card.privacy.closest_median,
        "valid": card.validity.share,
    }


def real_scores(card: Scorecard) -> dict[str, float]:
    """What the real log itself has, where that is the target."""
    easy = card.scheduler["EASY"].real
    return {
        "lag 1": card.arrivals.autocorrelation_real[1],
        **{f"Fano {scale}": card.arrivals.fano_real[scale] for scale in SCALES},
        "load": card.load.real,
        "EASY wait, s": easy.wait_s,
        "EASY slowdown": easy.bounded_slowdown,
        "copies": card.privacy.copy_rate_holdout,
        "closest": card.privacy.closest_median_holdout,
    }


def imagine(
    real: Sample, name: str, seeds: int, cache: Path, done: Callable[[str], None]
) -> tuple[list[Sample], float | None, float | None]:
    """Synthetic logs as long as the real one, and what fitting and sampling took; logs already there are kept."""
    paths = [cache / f"{name}-{seed}.parquet" for seed in range(seeds)]
    spent = cache / f"{name}.json"
    cost: dict[str, float] = orjson.loads(spent.read_bytes()) if spent.exists() else {}
    if not all(path.exists() for path in paths):
        cache.mkdir(parents=True, exist_ok=True)
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
        spent.write_bytes(orjson.dumps(cost))
    return [Sample(name, read(path)) for path in paths], cost.get("fit_s"), cost.get("jobs_per_s")


def study(
    real: Sample,
    generators: Sequence[str],
    published: Sequence[Sample],
    cache: Path,
    seeds: int = 10,
    slow_seeds: int | None = None,
    procs: int | None = None,
    done: Callable[[str], None] = lambda what: None,
) -> Study:
    """The whole table; `done` hears what is being done."""
    on = capacity(real.jobs, procs)
    pairs = [
        Pair(pair.name, pair.real, pair.synthetic, on.procs) for pair in yardsticks(real, np.random.default_rng(0))
    ]
    kinds = {pair.row: "yardstick" for pair in pairs}
    cost: dict[str, tuple[float | None, float | None]] = {}
    for name in generators:
        done(f"fitting {name}")
        count = slow_seeds if slow_seeds and name in SLOW else seeds
        logs, *spent = imagine(real, name, count, cache, done)
        cost[name] = (spent[0], spent[1])
        kinds[name] = "generator"
        pairs += [Pair(name, real, log, on.procs) for log in logs]
    for sample in published:
        row = f"{sample.name} (published)"
        kinds[row] = "published"
        pairs.append(Pair(row, real, sample, on.procs))
    found: dict[str, dict[str, list[float]]] = {row: {} for row in kinds}
    done(f"scoring {len(pairs)} logs")
    cards = each(_score, pairs, done=lambda index, _: done(f"scored {pairs[index].row}"))
    for pair, (values, _) in zip(pairs, cards, strict=True):
        for measure, value in values.items():
            found[pair.row].setdefault(measure, []).append(value)
    table = tuple(Row(row, kind, found[row], *cost.get(row, (None, None))) for row, kind in kinds.items())
    return Study(real.name, len(real), on.procs, on.unit, _of_real(pairs, cards), table)


def _score(pair: Pair) -> tuple[dict[str, float], dict[str, float]]:
    card = scorecard(pair.real, pair.synthetic, pair.row, pair.procs)
    return scores(card, pair.real, pair.synthetic), real_scores(card)


def _of_real(pairs: Sequence[Pair], cards: Sequence[tuple[dict[str, float], dict[str, float]]]) -> dict[str, float]:
    """From a pair whose real side is the whole log; the first yardsticks compare halves."""
    longest = max(range(len(pairs)), key=lambda i: len(pairs[i].real))
    return cards[longest][1]


def cell(row: Row, measure: str) -> str:
    """Mean and spread over the seeds, as a person reads them.

    >>> cell(Row("x", "generator", {"lag 1": [0.25, 0.75]}), "lag 1")
    '0.500 (0.250–0.750)'
    """
    values = row.scores.get(measure)
    if not values:
        return ""
    text = [f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 10 else f"{value:.3f}"
            for value in (float(np.mean(values)), min(values), max(values))]  # fmt: skip
    return text[0] if len(values) == 1 else f"{text[0]} ({text[1]}–{text[2]})"


def page(study: Study) -> str:
    """One self-contained HTML table."""
    head = "".join(f"<th>{escape(measure)}</th>" for measure in ("", "seeds", *study.measures))
    truth = Row("real", "real", {measure: [value] for measure, value in study.real.items()})
    lines = []
    for row in (truth, *study.rows):
        cells = "".join(f"<td>{escape(cell(row, measure))}</td>" for measure in study.measures)
        shade = " class=yard" if row.kind in ("real", "yardstick") else ""
        lines.append(f"<tr{shade}><td>{escape(row.name)}</td><td>{row.seeds}</td>{cells}</tr>")
    note = (
        f"{study.jobs} jobs; EASY on {study.procs} {study.unit}. Mean (least–most) over the seeds. Shaded: the real "
        "log's own values, and real against real. KS complement: 1 is the same distribution. AUC: 0.5 cannot be told "
        "apart. Copies and closest of the real log: one half of it against the other."
    )
    title = f"{study.log}: generators"
    body = (
        f"<h1>{escape(title)}</h1><p class=note>{escape(note)}</p>"
        f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
    return document(title, body)
