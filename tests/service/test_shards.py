"""Parts share no job, and their scores together are those of the whole."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.service.conftest import campaign
from tests.telemetry.detection.test_events import a_moment

from clustertwin.service.shards import deal, gather, take
from clustertwin.telemetry.detection.moment import moments

threads = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["", "j", "k", "l"])), min_size=1, max_size=30)


@given(threads, st.integers(1, 4))
def test_every_thread_is_in_one_part_and_no_job_or_node_in_two(threads, parts):
    threads = sorted(threads)
    moment = a_moment(1000, [job for _, job in threads], [node for node, _ in threads])
    dealt = deal(moment, parts)
    assert sorted(np.concatenate(dealt)) == list(range(len(threads)))
    for names in (moment.node, moment.job):
        where = [set(names[rows].tolist()) - {-1} for rows in dealt]
        assert sum(map(len, where)) == len(set().union(*where))


def test_parts_score_as_the_whole(detector):
    many = [moment for moment, _ in moments(campaign(7, 0.3, nodes=6, job_types=("np",)))]
    moment = next(moment for moment in many if len(deal(moment, 3)) == 3)
    whole = detector.score(moment)
    dealt = deal(moment, 3)
    together = gather(moment, [(rows, detector.score(take(moment, rows))) for rows in dealt])
    np.testing.assert_allclose(together.score, whole.score, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(together.embedding, whole.embedding, rtol=1e-4, atol=1e-4)
