"""The threads of an event in a moment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.counted_name import CountedName
from tests.service import sample_state

from clustertwin.telemetry.detection.events.event_rows import rows_of, rows_to_explain


def test_the_rows_of_an_event_are_in_the_order_of_its_places_without_threads_that_are_gone() -> None:
    moment = sample_state.moment(("n1", "n2", "n3"), cpus=4)
    event = replace(sample_state.EVENT, places=(("n3", (2, 0, 9)), ("n1", (1,)), ("n7", (0,))))
    assert rows_of(moment, event).tolist() == [10, 8, 1]
    assert rows_to_explain(moment, event).tolist() == [0, 1, 2, 3, 8, 9, 10, 11]


def test_to_find_an_event_costs_no_lookup_for_each_thread_of_the_cluster() -> None:
    """A hundred events on 80,000 threads took the page of the embedding two seconds, in which the loop waited."""
    nodes = tuple(CountedName(f"n{i:03d}") for i in range(100))
    moment = sample_state.moment(nodes, cpus=50)
    event = replace(sample_state.EVENT, places=((nodes[7], (3,)), (nodes[9], (4,))))
    CountedName.lookups = 0
    np.testing.assert_array_equal(rows_of(moment, event), [353, 454])
    assert CountedName.lookups < 500  # 100 nodes, and the 100 threads of two of them
    CountedName.lookups = 0
    assert len(rows_to_explain(moment, event)) == 100
    assert CountedName.lookups < 500
