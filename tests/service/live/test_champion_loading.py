"""A detector that could not be loaded is loaded later, without a restart."""

from __future__ import annotations

import time

import pytest
from tests.service.conftest import Clock

from clustertwin.service.live.champion_loading import AGAIN_S, RepeatedLoading


def ended(loading: RepeatedLoading) -> None:
    while not loading._attempt.done():
        time.sleep(0.001)


def test_a_failed_attempt_is_named_and_repeated_when_it_is_due():
    clock, attempts = Clock(100.0), []

    def load():
        attempts.append(clock.now_s)
        if len(attempts) < 3:
            raise OSError(24, "Too many open files")
        return "detector"

    loading = RepeatedLoading(load, clock)
    for _ in range(2):
        ended(loading)
        for _ in range(3):  # the loop asks every second
            with pytest.raises(OSError, match="Too many open files"):
                loading.result()
            assert loading.done()
        clock.now_s += AGAIN_S
        with pytest.raises(OSError, match="Too many open files"):
            loading.result()  # begins the next attempt, and still names the last
    ended(loading)
    assert (loading.done(), loading.result(), len(attempts)) == (True, "detector", 3)
    assert loading.result() == "detector"


def test_until_the_first_attempt_ends_nothing_is_done():
    import threading

    go = threading.Event()
    loading = RepeatedLoading(lambda: go.wait(60) and "detector")
    assert not loading.done()
    go.set()
    assert loading.result() == "detector"
    assert loading.done()
