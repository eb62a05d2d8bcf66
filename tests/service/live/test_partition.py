"""Parts of a moment share no job, and together they have the scores of the whole moment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.conftest import campaign
from tests.telemetry.detection.test_events import a_moment

from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.event_rows import rows_of, rows_to_explain
from clustertwin.telemetry.detection.events.explanation import explain
from clustertwin.telemetry.detection.partition import combine, contiguous_parts, split_by_job
from clustertwin.telemetry.moments.moment import moments

threads = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["", "j", "k", "l"])), min_size=1, max_size=30)


@given(threads, st.integers(1, 4))
def test_every_thread_is_in_one_part_and_no_job_or_node_in_two(threads, parts):
    threads = sorted(threads)
    moment = a_moment(1000, [job for _, job in threads], [node for node, _ in threads])
    dealt = split_by_job(moment, parts)
    assert sorted(np.concatenate(dealt)) == list(range(len(threads)))
    for names in (moment.node, moment.job):
        where = [set(names[rows].tolist()) - {-1} for rows in dealt]
        assert sum(map(len, where)) == len(set().union(*where))


@given(threads, st.integers(1, 5))
def test_runs_are_adjacent_and_split_no_job_and_no_node(threads, parts):
    threads = sorted(threads)
    moment = a_moment(1000, [job for _, job in threads], [node for node, _ in threads])
    slices = contiguous_parts(moment, parts)
    assert len(slices) <= parts
    assert [row for rows in slices for row in range(rows.start, rows.stop)] == list(range(len(threads)))
    for names in (moment.node, moment.job):
        where = [set(names[rows].tolist()) - {-1} for rows in slices]
        assert sum(map(len, where)) == len(set().union(*where))


def test_runs_are_even_where_jobs_allow():
    moment = a_moment(1000, [""] * 12, sorted("abcdef" * 2))
    assert [rows.stop - rows.start for rows in contiguous_parts(moment, 3)] == [4, 4, 4]


@pytest.fixture(scope="module")
def moment():
    many = [moment for moment, _ in moments(campaign(7, 0.3, nodes=6, job_types=("np",)))]
    return next(moment for moment in many if len(split_by_job(moment, 3)) == 3)


def test_parts_give_the_scores_of_the_whole_and_a_lost_part_is_unknown(detector, moment):
    expected = detector.score(moment)
    dealt = split_by_job(moment, 3)
    parts = [(rows, detector.score(moment.take(rows))) for rows in dealt]
    together = combine(moment, parts)
    np.testing.assert_allclose(together.score, expected.score, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(together.embedding, expected.embedding, rtol=1e-4, atol=1e-4)
    without = combine(moment, parts[1:])
    assert np.isnan(without.score[dealt[0]]).all()
    np.testing.assert_array_equal(without.score[dealt[1]], together.score[dealt[1]])


def test_an_explanation_needs_only_the_threads_around_the_event(detector, moment):
    scores = detector.score(moment)
    held = int(np.flatnonzero((moment.job >= 0) & ~np.isnan(scores.score))[0])
    free = int(np.flatnonzero((moment.job < 0) & ~np.isnan(scores.score))[0])
    for row in (held, free):
        places = ((moment.nodes[moment.node[row]], (int(moment.cpu[row]),)),)
        event = Event("e", places, (), "", 0, 0, None, 5.0, "density", "m")
        near = rows_to_explain(moment, event)
        assert len(near) < len(moment)
        small = moment.take(near)
        from_near = explain(detector, small, scores.take(near), rows_of(small, event))
        from_afar = explain(detector, moment, scores, rows_of(moment, event))
        assert (from_near.sentence, from_near.neighbours) == (from_afar.sentence, from_afar.neighbours)
