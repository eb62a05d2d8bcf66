"""Where the graph helps: graph-assisted and plain models of the same seeds -> paired differences and their tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.telemetry.studies.reference.embedding_quality import BAD
from clustertwin.telemetry.studies.reference.ensembles import Judged
from clustertwin.telemetry.studies.reference.reconstruction_section import by_recipe
from clustertwin.telemetry.studies.reference.section import Section, Table

PLAIN, GRAPHS = "ae", ("node-gnn-ae", "job-gnn-ae")
LEVEL = 0.05

Figures = NDArray[np.float64]  # (seed,)


@dataclass(frozen=True, slots=True)
class Difference:
    """One question, the graph's answer less the plain one's, seed by seed."""

    question: str
    graph: str
    plain_mean: float
    graph_mean: float
    better: bool  # whether the mean difference is in the graph's favour
    p: float  # of a paired t-test, corrected for the number of questions


def compare(judged: Sequence[Judged]) -> list[Difference]:
    """Every question about every graph; needs both sides with the same seeds, at least three of them."""
    ensembles = by_recipe(judged)
    plain = {one.seed: one for one in ensembles.get(PLAIN, [])}
    raw: list[tuple[str, str, Figures, Figures, int]] = []
    for graph in GRAPHS:
        assisted = {one.seed: one for one in ensembles.get(graph, [])}
        seeds = sorted(plain.keys() & assisted.keys())
        if len(seeds) < 3:
            continue
        for question, (answer, sign) in _questions(plain[seeds[0]]).items():
            before, after = (np.array([answer(side[seed]) for seed in seeds]) for side in (plain, assisted))
            raw.append((question, graph, before, after, sign))
    p = corrected([_paired(before, after) for _, _, before, after, _ in raw])
    return [
        Difference(question, graph, float(a.mean()), float(b.mean()), bool(sign * (b - a).mean() > 0), p[i])
        for i, (question, graph, a, b, sign) in enumerate(raw)
    ]


def _questions(one: Judged) -> Mapping[str, tuple[Callable[[Judged], float], int]]:
    """What is asked, and whether more (+1) or less (-1) of it is better."""

    def auc(anomaly: str) -> Callable[[Judged], float]:
        return lambda judged: judged.auc[anomaly]

    def error(kind: str) -> Callable[[Judged], float]:
        return lambda judged: judged.by_kind[kind]

    return {
        "error, normal": (lambda judged: judged.normal, -1),
        **{f"error, {kind}": (error(kind), -1) for kind in one.by_kind if kind != BAD},
        "silhouette": (lambda judged: judged.silhouette, 1),
        **{f"AUC, {anomaly}": (auc(anomaly), 1) for anomaly in one.auc},
    }


def _paired(a: Figures, b: Figures) -> float:
    if np.ptp(b - a) < 1e-12:  # the same difference for each seed: none at all, or beyond doubt
        return 1.0 if abs(float((b - a).mean())) < 1e-12 else 0.0
    return float(require("scipy.stats", "models").ttest_rel(a, b).pvalue)


def corrected(p: Sequence[float]) -> list[float]:
    """Holm's correction: the chance of even one false finding stays below the level.

    >>> [round(x, 2) for x in corrected([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    out, highest = [0.0] * len(p), 0.0
    for rank, i in enumerate(np.argsort(p).tolist()):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        out[i] = highest
    return out


def graph(judged: Sequence[Judged]) -> Section:
    """The section: what the graph betters, what it worsens, and what it leaves."""
    found = compare(judged)
    helps = [f"{one.question} ({one.graph})" for one in found if one.p < LEVEL and one.better]
    harms = [f"{one.question} ({one.graph})" for one in found if one.p < LEVEL and not one.better]
    text = (
        f"Of {len(found)} questions the graph significantly betters {len(helps)}"
        f"{': ' + ', '.join(helps) if helps else ''}; it worsens {len(harms)}"
        f"{': ' + ', '.join(harms) if harms else ''}."
        if found
        else f"Nothing to compare: {PLAIN} and a graph model need three seeds in common."
    )
    return Section("graph", "Where the graph helps", text, (_table(found, judged),) if found else ())


def _table(found: Sequence[Difference], judged: Sequence[Judged]) -> Table:
    """A line for each question, the graphs side by side."""
    lines: dict[str, dict[str, Difference]] = {}
    for one in found:
        lines.setdefault(one.question, {})[one.graph] = one
    graphs = [name for name in GRAPHS if any(name in line for line in lines.values())]
    rows = []
    for question, line in lines.items():
        cells = [cell for name in graphs for cell in (f"{line[name].graph_mean:.4f}", f"{line[name].p:.2g}")]
        said = [f"{name} {'helps' if one.better else 'harms'}" for name, one in line.items() if one.p < LEVEL]
        rows.append((question, f"{next(iter(line.values())).plain_mean:.4f}", *cells, ", ".join(said)))
    ensembles = by_recipe(judged)
    budget = ", ".join(
        f"{name} {np.mean([one.cpu_s for one in ensembles[name]]):.0f}"
        for name in (PLAIN, *GRAPHS)
        if name in ensembles
    )
    return Table(
        "The graph against the plain model",
        ("question", PLAIN, *(column for name in graphs for column in (name, f"p, {name}")), f"p < {LEVEL}"),
        tuple(rows),
        "Models of the same seed, as many epochs, the same windows; paired t-tests, corrected after Holm. AUC is that "
        f"of the reconstruction error alone, for each anomaly against all normal windows. CPU s a model: {budget}.",
    )
