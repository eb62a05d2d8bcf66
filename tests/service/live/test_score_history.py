"""The history of node scores while nodes come and go."""

from __future__ import annotations

import json

import numpy as np
from tests.counted_name import CountedName

from clustertwin.service.live.score_history import NodeScores
from clustertwin.service.live.snapshot import NodeState
from clustertwin.service.web.api.cluster import _history_json
from clustertwin.service.web.api.json_values import plain


def states(names: list[str], score: float) -> tuple[NodeState, ...]:
    return tuple(NodeState(name, "watching", 4, 0, score + i, 0.1, 1, 0, ()) for i, name in enumerate(names))


def test_each_node_keeps_its_own_scores_while_others_come_and_go() -> None:
    """Checked against a table by name, also after names that nobody needs any more were forgotten."""
    rng, history = np.random.default_rng(0), NodeScores(60)
    known: dict[tuple[int, str], float] = {}
    for end_s in range(5, 2000, 5):
        names = sorted({f"n{i}" for i in rng.integers(end_s, end_s + 40, 30)})
        table = history.add(end_s, states(names, float(end_s)))
        known |= {(end_s, name): end_s + i for i, name in enumerate(names)}
        assert table.nodes == tuple(names)
        expected = [[known.get((at_s, name), np.nan) for at_s in table.times_s.tolist()] for name in names]
        np.testing.assert_array_equal(table.score, np.array(expected, np.float32))
        assert table.times_s[0] > end_s - 60


def test_a_clock_that_is_set_back_removes_the_later_scorings() -> None:
    history = NodeScores(60)
    for end_s in (5, 10, 15):
        history.add(end_s, states(["a", "b"], end_s))
    table = history.add(10, states(["b"], 1.0))
    assert table.times_s.tolist() == [5, 10]
    np.testing.assert_array_equal(table.score, [[6.0, 1.0]])


def test_a_node_that_leaves_costs_no_lookup_for_each_scoring_of_the_last_hour() -> None:
    """With 5,000 nodes every scoring took 1.6 s longer, until the hour was over."""
    history, names = NodeScores(3600), [CountedName(f"n{i:02d}") for i in range(50)]
    for end_s in range(100):
        history.add(end_s + 1, states(names, 1.0))
    CountedName.lookups = 0
    history.add(101, states(names[1:], 1.0))
    history.add(102, states(names[1:], 1.0))
    assert CountedName.lookups <= 2 * len(names)


def test_the_history_of_the_api_is_the_same_as_its_lists_of_numbers() -> None:
    history = NodeScores(60)
    history.add(5, states(["a"], 1.23456))
    table = history.add(10, (*states(["a", "b"], 2.0), NodeState("c", "stale", 4, 0, np.nan, np.nan, 0, 4, ())))
    assert json.loads(_history_json(table)) == plain(table)
