import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertwin.workload.generators.crossover.exchange import (
    NONE,
    ExchangeLimits,
    SessionChains,
    SimilarNodes,
    exchange,
)

WEEK_S = 7 * 86400.0


def chains(lengths, work=None, room_s=np.inf):
    """Sessions with the given numbers of jobs, a day apart, a minute between jobs."""
    slots, jobs = len(lengths), sum(lengths)
    slot = np.repeat(np.arange(slots), lengths)
    first = np.append(True, np.diff(slot) != 0)
    node = slots + np.arange(jobs)
    after, before = np.full(slots + jobs, NONE), np.full(slots + jobs, NONE)
    before[node] = np.where(first, slot, node - 1)
    after[before[node]] = node
    gap_s = np.concatenate([np.zeros(slots), np.where(first, 0.0, 60.0)])
    at_s = np.concatenate([np.arange(slots), slot]) * 86400.0
    weights = np.concatenate([np.zeros(slots), np.ones(jobs) if work is None else work])
    return SessionChains(after, before, gap_s, weights, at_s, np.full(slots, room_s))


def walk(linked):
    """The jobs of each session, in order."""
    sessions = []
    for slot in range(len(linked.room_s)):
        node, jobs = linked.after[slot], []
        while node != NONE:
            jobs.append(int(node))
            node = linked.after[node]
        sessions.append(jobs)
    return sessions


def run(linked, kind=None, seed=0, tries=2000, far_s=WEEK_S, most_work=1e9, ratio=100.0):
    kind = np.zeros(len(linked.after), int) if kind is None else kind
    kind = np.where(np.arange(len(kind)) < len(linked.room_s), -1, kind)
    limits = ExchangeLimits(far_s, most_work, ratio)
    return exchange(linked, SimilarNodes.of(kind, linked.at_s), limits, tries, 5, np.random.default_rng(seed))


@settings(max_examples=settings.default.max_examples // 4)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=12), st.integers(0, 10**6))
def test_every_job_stays_in_exactly_one_chain(lengths, seed):
    linked = chains(lengths)
    run(linked, seed=seed)
    assert sorted(node for jobs in walk(linked) for node in jobs) == list(
        range(len(lengths), len(lengths) + sum(lengths))
    )


def test_sessions_exchange_their_tails():
    linked = chains([4, 4, 4])
    before = walk(linked)
    assert run(linked) > 0
    assert walk(linked) != before


def test_jobs_of_different_kinds_exchange_nothing():
    linked = chains([3, 3])
    before = walk(linked)
    kind = np.arange(len(linked.after))
    similar, limits = SimilarNodes.of(kind, linked.at_s), ExchangeLimits(WEEK_S, 1e9, 100.0)
    assert exchange(linked, similar, limits, 1000, 5, np.random.default_rng(0)) == 0
    assert walk(linked) == before


def test_no_exchange_moves_more_work_than_allowed():
    linked = chains([2, 2], work=np.array([1.0, 1.0, 1.0, 100.0]))
    run(linked, most_work=5.0)
    heavy = 2 + 3
    assert [heavy in jobs for jobs in walk(linked)] == [False, True]


def test_no_session_grows_beyond_its_room():
    linked = chains([2, 9, 9], room_s=480.0)  # nine jobs last eight minutes
    run(linked)
    assert all(sum(linked.gap_s[node] for node in jobs) <= 480 for jobs in walk(linked))


def test_no_job_moves_further_in_the_calendar_than_allowed():
    linked = chains([3] * 20)
    run(linked, far_s=2 * 86400.0)
    for slot, jobs in enumerate(walk(linked)):
        assert all(abs(linked.at_s[node] - linked.at_s[slot]) <= 4 * 86400 for node in jobs[:1])
