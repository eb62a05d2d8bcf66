"""A detector that could not be loaded is loaded later, without a restart."""

from __future__ import annotations

import threading
import time

import pytest
from tests.service.conftest import Clock

from clustertwin.service.live.champion_loading import AGAIN_S, MOST_ATTEMPTS, RepeatedLoading
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.turn_failures import LoopFailed
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.models.model_store import ModelError


class NoData:
    source, pace, patient, faults, problems = "none", 1.0, False, Faults(), ()

    def now_s(self):
        return 1000.0

    def take(self):
        return []

    def close(self):
        pass


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


@pytest.mark.parametrize(("error", "gives_up"), [(AttributeError("torch"), True), (ModelError("m", "no"), False)])
def test_after_three_failures_the_service_ends_unless_another_process_would_fail_too(error, gives_up, state):
    clock = Clock(0.0)

    def load():
        raise error

    loading = RepeatedLoading(load, clock)
    for _ in range(MOST_ATTEMPTS):
        assert not loading.gave_up
        ended(loading)
        with pytest.raises(type(error)):
            loading.result()
        clock.now_s += AGAIN_S
        with pytest.raises(type(error)):
            loading.result()
    assert loading.gave_up == gives_up
    loop, stop = Loop(state, NoData(), loading), threading.Event()
    if gives_up:
        with pytest.raises(LoopFailed, match="torch"):
            loop.run(stop)
    else:
        threading.Timer(0.2, stop.set).start()
        loop.run(stop)


def test_until_the_first_attempt_ends_nothing_is_done():
    go = threading.Event()
    loading = RepeatedLoading(lambda: go.wait(60) and "detector")
    assert not loading.done()
    go.set()
    assert loading.result() == "detector"
    assert loading.done()
