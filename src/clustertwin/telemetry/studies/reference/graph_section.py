"""The effect of the graph: graph-assisted and plain models with the same seeds -> paired t-tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.telemetry.studies.reference.embedding_quality import BAD_IO
from clustertwin.telemetry.studies.reference.ensembles import EvaluatedMember
from clustertwin.telemetry.studies.reference.reconstruction_section import by_recipe
from clustertwin.telemetry.studies.reference.section import Section, Table

PLAIN, GRAPHS = "ae", ("node-gnn-ae", "job-gnn-ae")
SIGNIFICANCE = 0.05

Values = NDArray[np.float64]  # (seed,)
Metric = Callable[[EvaluatedMember], float]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """One metric of a graph model and of the plain model, compared over the same seeds."""

    metric: str
    graph: str
    plain_mean: float
    graph_mean: float
    better: bool  # the graph model is better on average
    p: float  # of a paired t-test, with Holm's correction


def compare_graphs(members: Sequence[EvaluatedMember]) -> list[PairedComparison]:
    """Every metric of every graph model that has at least three seeds in common with the plain model."""
    ensembles = by_recipe(members)
    plain = {member.seed: member for member in ensembles.get(PLAIN, [])}
    pairs: list[tuple[str, str, Values, Values, int]] = []
    for graph in GRAPHS:
        assisted = {member.seed: member for member in ensembles.get(graph, [])}
        seeds = sorted(plain.keys() & assisted.keys())
        if len(seeds) < 3:
            continue
        for name, (metric, sign) in _metrics(plain[seeds[0]]).items():
            without, with_graph = (np.array([metric(side[seed]) for seed in seeds]) for side in (plain, assisted))
            if np.isnan(without).any():  # e.g. the silhouette of a single kind of job
                continue
            pairs.append((name, graph, without, with_graph, sign))
    p = holm_correction([_paired_t_test(without, with_graph) for _, _, without, with_graph, _ in pairs])
    return [
        PairedComparison(name, graph, float(a.mean()), float(b.mean()), bool(sign * (b - a).mean() > 0), p[i])
        for i, (name, graph, a, b, sign) in enumerate(pairs)
    ]


def _metrics(example: EvaluatedMember) -> Mapping[str, tuple[Metric, int]]:
    """The metrics to compare, and whether higher (+1) or lower (-1) is better."""

    def auc(anomaly: str) -> Metric:
        return lambda member: member.auc[anomaly]

    def error(kind: str) -> Metric:
        return lambda member: member.by_kind[kind]

    return {
        "error, normal": (lambda member: member.normal, -1),
        **{f"error, {kind}": (error(kind), -1) for kind in example.by_kind if kind != BAD_IO},
        "silhouette": (lambda member: member.silhouette, 1),
        **{f"AUC, {anomaly}": (auc(anomaly), 1) for anomaly in example.auc},
    }


def _paired_t_test(a: Values, b: Values) -> float:
    if np.ptp(b - a) < 1e-12:  # the t statistic is undefined if the difference is the same for all seeds
        return 1.0 if abs(float((b - a).mean())) < 1e-12 else 0.0
    return float(require("scipy.stats", "models").ttest_rel(a, b).pvalue)


def holm_correction(p: Sequence[float]) -> list[float]:
    """Holm's correction of p-values, which controls the probability of any false rejection.

    >>> [round(x, 2) for x in holm_correction([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    out, highest = [0.0] * len(p), 0.0
    for rank, i in enumerate(np.argsort(p).tolist()):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        out[i] = highest
    return out


def graph_section(members: Sequence[EvaluatedMember]) -> Section:
    """The section: the metrics in which a graph model is significantly better or worse than the plain model."""
    comparisons = compare_graphs(members)
    if not comparisons:
        text = f"No comparison is possible: {PLAIN} and a graph model need three seeds in common."
        return Section("graph", "Effect of the graph", text)
    significant = [each for each in comparisons if each.p < SIGNIFICANCE]
    better, worse = (_names(each for each in significant if each.better is improved) for improved in (True, False))
    text = f"In {len(comparisons)} comparisons, a graph model is significantly better in {better} and worse in {worse}."
    return Section("graph", "Effect of the graph", text, (_table(comparisons, members),))


def _names(comparisons: Iterable[PairedComparison]) -> str:
    """`2 (silhouette with node-gnn-ae, AUC, hung-rank with job-gnn-ae)`, or `none`."""
    names = [f"{each.metric} with {each.graph}" for each in comparisons]
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def _table(comparisons: Sequence[PairedComparison], members: Sequence[EvaluatedMember]) -> Table:
    """A row for each metric, with the graph models side by side."""
    by_metric: dict[str, dict[str, PairedComparison]] = {}
    for each in comparisons:
        by_metric.setdefault(each.metric, {})[each.graph] = each
    graphs = [name for name in GRAPHS if any(name in row for row in by_metric.values())]
    rows = []
    for metric, row in by_metric.items():
        cells = [cell for name in graphs for cell in (f"{row[name].graph_mean:.4f}", f"{row[name].p:.2g}")]
        effects = [
            f"{name} {'helps' if each.better else 'harms'}" for name, each in row.items() if each.p < SIGNIFICANCE
        ]
        rows.append((metric, f"{next(iter(row.values())).plain_mean:.4f}", *cells, ", ".join(effects)))
    ensembles = by_recipe(members)
    cpu_s = ", ".join(
        f"{name} {np.mean([member.cpu_s for member in ensembles[name]]):.0f}"
        for name in (PLAIN, *GRAPHS)
        if name in ensembles
    )
    return Table(
        "The graph against the plain model",
        ("question", PLAIN, *(column for name in graphs for column in (name, f"p, {name}")), f"p < {SIGNIFICANCE}"),
        tuple(rows),
        "Both models have the same seeds, epochs and windows; paired t-tests with Holm's correction. AUC: of the "
        f"reconstruction error, for each anomaly against all normal windows. CPU seconds per model: {cpu_s}.",
    )
