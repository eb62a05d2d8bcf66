"""`kill -9` at any point of a night leaves one valid champion, and the next run completes the night."""

import os
import shutil
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.learning.champions.fencing_lock import next_fence
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.learning.duel.golden_set import GoldenSet
from clustertwin.telemetry.learning.night.day_sampling import SamplingSettings
from clustertwin.telemetry.learning.night.nightly_cycle import run_night

pytestmark = [pytest.mark.slow, pytest.mark.forks]

STEPS = ("begin", "gather", "check", "plan", "train", "judge", "choose", "enter", "promote", "remember", "record")
PLACES = [f"{when} {step}" for step in STEPS for when in ("before", "after", "noted")] + ["noted night"]
PLACES.insert(PLACES.index("after train"), "trained linear/scratch")


@pytest.fixture
def tiny_context(make_context, small_golden):
    """The smallest complete night."""
    few = GoldenSet(small_golden.moments[:4], small_golden.anomaly[:4], small_golden.sha256)

    def make(**changes):
        context, day = make_context(2, golden=lambda: few)
        return replace(context, settings=replace(context.settings, sampling=SamplingSettings(25, 0)), **changes), day

    return make


def in_a_child(work, kill_after_s=None):
    """Run in a forked process; True if it succeeded before it was killed."""
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
    """The champion can be loaded, and the service has taken it over."""
    assert champion_store.load_champion(home).version == champion_store.read_champion(home).version
    assert handover.poll().version == champion_store.read_champion(home).version
    assert handover.refused == 0


def test_a_crash_at_any_step_leaves_one_champion_and_the_next_run_completes(tiny_context, make_detector):
    context, day = tiny_context()
    handover = Handover(context.home, make_detector(0))
    versions = []
    for place in PLACES:

        def die(here, place=place):
            if here == place:
                os.kill(os.getpid(), signal.SIGKILL)

        ended = in_a_child(lambda die=die: run_night(replace(context, crash_point=die), day))
        assert not ended, f"{place} was never reached"
        one_valid_champion(context.home, handover)
        versions.append(champion_store.read_champion(context.home).version)
    night = run_night(context, day)
    assert night.outcome == "promoted"
    assert night.before == versions[0] != night.champion
    assert versions.count(versions[0]) == PLACES.index("after promote")  # the champion changes there, once
    one_valid_champion(context.home, handover)
    assert handover.taken == 1


def test_a_hundred_kills_at_random_leave_one_champion_and_the_last_run_completes(tiny_context, make_detector):
    context, day = tiny_context()
    handover = Handover(context.home, make_detector(0))
    rng = np.random.default_rng(5)
    assert run_night(context, day).outcome == "promoted"  # imports and compiles everything before the process forks
    _start_again(context.home, day.name, make_detector)
    started_s = time.monotonic()
    assert in_a_child(lambda: run_night(context, day))
    duration_s = time.monotonic() - started_s
    completed = 0
    for _ in range(100):
        if (context.home / "nights" / day.name / "night.json").exists():
            completed += 1
            _start_again(context.home, day.name, make_detector)
        in_a_child(lambda: run_night(context, day), kill_after_s=rng.uniform(0, 0.6 * duration_s))
        one_valid_champion(context.home, handover)
    assert run_night(context, day).outcome == "promoted" or completed
    one_valid_champion(context.home, handover)
    assert not list((context.home / "models").glob(".*"))  # no draft is left behind


def _start_again(home, day, make_detector):
    """Remove the night and put the first champion back in service."""
    shutil.rmtree(home / "nights" / day)
    champion_store.promote(home, make_detector(0).version, next_fence(home), "again", 0.0)
