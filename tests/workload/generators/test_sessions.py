import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.workload.generators.crossover.sessions import session_starts


def test_a_pause_of_more_than_an_hour_starts_a_session():
    at_s = np.array([0.0, 3600, 7201, 7300])
    assert session_starts(at_s, np.zeros(4, int)).tolist() == [0, 2]


def test_another_user_starts_a_session():
    assert session_starts(np.array([0.0, 1, 2]), np.array([1, 1, 2])).tolist() == [0, 2]


def test_a_long_session_is_cut_at_its_longest_pause():
    at_s = np.cumsum([0.0] + [1000] * 8 + [3000] + [1000] * 8)
    assert session_starts(at_s, np.zeros(18, int)).tolist() == [0, 9]


def test_a_job_array_of_thousands_of_jobs_is_cut():
    begins = session_starts(np.zeros(5000), np.zeros(5000, int))
    assert np.diff(begins, append=5000).max() <= 500


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 10**6)), min_size=1, max_size=60))
def test_no_session_is_longer_than_allowed_and_none_has_two_users(rows):
    user, at_s = np.array(sorted(rows)).T
    begins = session_starts(at_s.astype(float), user)
    for begin, end in zip(begins, [*begins[1:], len(user)], strict=True):
        assert len(set(user[begin:end])) == 1
        assert at_s[end - 1] - at_s[begin] <= 4 * 3600
    assert begins[0] == 0
