from dataclasses import replace

import pytest

from clustertwin.telemetry.models.training import TrainingSettings
from clustertwin.telemetry.studies.reference.ensembles import EvaluatedMember
from clustertwin.telemetry.studies.reference.graph_section import compare_graphs, graph_section, holm_correction

PLAIN = EvaluatedMember(
    "ae", 0, 16, 0.01, 0.5, 0.7, 0.8, {}, {"hung-rank": 0.2, "throttled": 0.9}, 1.0, TrainingSettings(), {}
)


def ensemble(recipe, hung, throttled):
    return [
        replace(PLAIN, recipe=recipe, seed=i, auc={"hung-rank": h, "throttled": t})
        for i, (h, t) in enumerate(zip(hung, throttled, strict=True))
    ]


MEMBERS = [
    *ensemble("ae", (0.20, 0.22, 0.21, 0.19), (0.90, 0.91, 0.89, 0.92)),
    *ensemble("job-gnn-ae", (0.90, 0.93, 0.91, 0.90), (0.91, 0.90, 0.90, 0.91)),
]


def test_only_significant_improvements_are_named():
    comparisons = {each.metric: each for each in compare_graphs(MEMBERS)}
    assert comparisons["AUC, hung-rank"].p < 0.001
    assert comparisons["AUC, hung-rank"].better
    assert comparisons["AUC, throttled"].p > 0.05
    assert comparisons["error, normal"].p == 1, "equal on every seed"
    assert (
        "significantly better in 1 (AUC, hung-rank with job-gnn-ae) and worse in none." in graph_section(MEMBERS).text
    )


def test_a_line_of_the_table_sets_plain_and_graph_side_by_side():
    table = graph_section(MEMBERS).tables[0]
    assert table.columns == ("question", "ae", "job-gnn-ae", "p, job-gnn-ae", "p < 0.05")
    hung = next(row for row in table.rows if row[0] == "AUC, hung-rank")
    assert (hung[1], hung[2], hung[4]) == ("0.2050", "0.9100", "job-gnn-ae helps")


def test_two_seeds_are_not_compared():
    few = MEMBERS[:2] + MEMBERS[4:6]
    assert compare_graphs(few) == []
    assert graph_section(few).tables == ()


def test_holm_never_lowers_and_never_exceeds_one():
    assert holm_correction([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm_correction([0.9, 0.8]) == [1.0, 1.0]
