"""kill -9 anywhere in a night: always one valid champion that can be loaded, and the next run completes."""

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.learning.duel.golden_set import Golden
from clustertwin.telemetry.learning.night.nightly_cycle import run

pytestmark = [pytest.mark.slow, pytest.mark.forks]

STEPS = ("begin", "gather", "check", "plan", "train", "judge", "choose", "enter", "promote", "remember", "record")
PLACES = [f"{when} {step}" for step in STEPS for when in ("before", "after", "noted")] + ["noted night"]
PLACES.insert(PLACES.index("after train"), "trained linear/scratch")


@pytest.fixture
def tiny_site(make_site, small_golden):
    """The least that makes a whole night."""
    few = Golden(small_golden.moments[:4], small_golden.anomaly[:4], small_golden.sha256)

    def make(**changes):
        site, day = make_site(2, golden=lambda: few)
        return replace(site, settings=replace(site.settings, moments=25), **changes), day

    return make


def in_a_child(work, kill_after_s=None):
    """Run in a forked process; True if it ended by itself."""
    assert threading.active_count() == 1
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0


def one_valid_champion(home, handover):
    """The champion's files are whole, and the service has a model."""
    assert champion_store.champion(home).version == champion_store.read_champion(home).version
    assert handover.poll().version == champion_store.read_champion(home).version
    assert handover.refused == 0


def test_a_crash_at_any_step_leaves_one_champion_and_the_next_run_completes(tiny_site, make_detector):
    site, day = tiny_site()
    handover = Handover(site.home, make_detector(0))
    seen = []
    for place in PLACES:

        def die(here, place=place):
            if here == place:
                os.kill(os.getpid(), signal.SIGKILL)

        assert not in_a_child(lambda die=die: run(replace(site, at=die), day)), f"{place} was never reached"
        one_valid_champion(site.home, handover)
        seen.append(champion_store.read_champion(site.home).version)
    night = run(site, day)
    assert night.outcome == "promoted"
    assert night.before == seen[0] != night.champion
    assert seen.count(seen[0]) == PLACES.index("after promote")  # the champion changes there, once
    one_valid_champion(site.home, handover)
    assert handover.taken == 1


def test_a_hundred_kills_at_random_leave_one_champion_and_the_last_run_completes(tiny_site, make_detector):
    site, day = tiny_site()
    handover = Handover(site.home, make_detector(0))
    rng = np.random.default_rng(5)
    assert run(site, day).outcome == "promoted"  # here: what it imports and compiles, the copies have from the start
    _begin_again(site.home, day.name, make_detector)
    began_s = time.monotonic()
    assert in_a_child(lambda: run(site, day))
    whole_s = time.monotonic() - began_s
    ends = 0
    for _ in range(100):
        if (site.home / "nights" / day.name / "night.json").exists():
            ends += 1
            _begin_again(site.home, day.name, make_detector)
        in_a_child(lambda: run(site, day), kill_after_s=rng.uniform(0, 0.6 * whole_s))
        one_valid_champion(site.home, handover)
    assert run(site, day).outcome == "promoted" or ends
    one_valid_champion(site.home, handover)
    assert not list((site.home / "models").glob(".*"))  # no draft is left behind


def _begin_again(home, day, make_detector):
    """The same night once more, under the first champion."""
    import shutil

    from clustertwin.telemetry.learning.champions.fencing_lock import next_fence

    shutil.rmtree(home / "nights" / day)
    champion_store.promote(home, make_detector(0).version, next_fence(home), "again", 0.0)
