from dataclasses import replace

import pytest

from clustertwin.telemetry.models.training import TrainingSettings
from clustertwin.telemetry.studies.reference.ensembles import Judged
from clustertwin.telemetry.studies.reference.graph_section import compare, corrected, graph

PLAIN = Judged("ae", 0, 16, 0.01, 0.5, 0.7, 0.8, {}, {"hung-rank": 0.2, "throttled": 0.9}, 1.0, TrainingSettings(), {})


def ensemble(recipe, hung, throttled):
    return [
        replace(PLAIN, recipe=recipe, seed=i, auc={"hung-rank": h, "throttled": t})
        for i, (h, t) in enumerate(zip(hung, throttled, strict=True))
    ]


JUDGED = [
    *ensemble("ae", (0.20, 0.22, 0.21, 0.19), (0.90, 0.91, 0.89, 0.92)),
    *ensemble("job-gnn-ae", (0.90, 0.93, 0.91, 0.90), (0.91, 0.90, 0.90, 0.91)),
]


def test_what_the_graph_betters_on_every_seed_is_named_and_nothing_else():
    found = {one.question: one for one in compare(JUDGED)}
    assert found["AUC, hung-rank"].p < 0.001
    assert found["AUC, hung-rank"].better
    assert found["AUC, throttled"].p > 0.05
    assert found["error, normal"].p == 1, "equal on every seed"
    assert "betters 1: AUC, hung-rank (job-gnn-ae); it worsens 0" in graph(JUDGED).text


def test_a_line_of_the_table_sets_plain_and_graph_side_by_side():
    table = graph(JUDGED).tables[0]
    assert table.columns == ("question", "ae", "job-gnn-ae", "p, job-gnn-ae", "p < 0.05")
    hung = next(row for row in table.rows if row[0] == "AUC, hung-rank")
    assert (hung[1], hung[2], hung[4]) == ("0.2050", "0.9100", "job-gnn-ae helps")


def test_two_seeds_are_not_compared():
    few = JUDGED[:2] + JUDGED[4:6]
    assert compare(few) == []
    assert graph(few).tables == ()


def test_holm_never_lowers_and_never_exceeds_one():
    assert corrected([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert corrected([0.9, 0.8]) == [1.0, 1.0]
