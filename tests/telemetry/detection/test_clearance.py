"""Distances on paper, and a job that slowly drifts into bad I/O."""

from __future__ import annotations

import numpy as np
import pytest
from clustertwin.telemetry.detection.views.region_distance import Regions, fit_clearance, nearest, nearness

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import explain, rows_of
from clustertwin.telemetry.detection.events.tracker import Tracker
from clustertwin.telemetry.detection.scores import NAMING_VIEW
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.simulation.anomalies import draw_afflicted, draw_healthy
from clustertwin.telemetry.simulation.signature import read_signatures

REGIONS = Regions(("bad-io", "throttled"), np.array([[3, 4], [0, 1]], np.float32))


def test_distances_are_those_of_the_embedding():
    threads = np.array([[0, 0], [3, 3]], np.float32)
    np.testing.assert_allclose(REGIONS.apart(threads), [[5, 1], [1, np.sqrt(13)]], rtol=1e-5)


def test_a_place_among_normal_threads_says_nothing_and_one_apart_from_them_does():
    rng = np.random.default_rng(0)
    apart = REGIONS.apart(rng.normal([0, 1], 0.3, (5000, 2)).astype(np.float32))  # around the second region
    clearance = fit_clearance(apart, 1e-3)
    fresh = REGIONS.apart(rng.normal([0, 1], 0.3, (5000, 2)).astype(np.float32))
    assert (clearance.surprise(fresh) > 3).mean() < 4e-3
    drifted = REGIONS.apart(np.array([[2.9, 4.1], [0, 1.05]], np.float32))
    surprise = clearance.surprise(drifted)
    assert surprise[0] > 4.5 > surprise[1]


def test_the_reason_is_the_thread_that_came_nearest_for_what_normal_ones_keep():
    clearance = fit_clearance(np.tile(np.array([[4.0, 0.5]], np.float32), (50, 1)), 1e-3)
    apart = np.array([[3.0, 0.49], [1.0, 2.0]], np.float32)
    near = nearest(REGIONS, apart, [clearance])
    assert near is not None
    assert (near.name, near.distance, near.kept) == ("bad-io", 1.0, 4.0)
    assert (nearness(apart, clearance.kept) > 0).tolist() == [[True, True], [True, False]]
    assert nearest(REGIONS, apart, []) is None


def drifting(seconds: int = 1800, seed: int = 0) -> Trace:
    """A node of four threads: an np job on two, of which ever more seconds are those of bad I/O."""
    rng, signatures = np.random.default_rng(seed), read_signatures()
    healthy = draw_healthy(signatures, "np", 2, seconds, rng)
    bad = draw_afflicted(signatures, "bad-io", "bad-io", 2, seconds, 0, rng)
    part = np.clip((np.arange(seconds) - 600) / 900, 0, 1)  # from none to all within a quarter of an hour
    job = np.where(rng.random((2, seconds, 1)) < part[:, None], bad, healthy)
    ticks = np.concatenate([job, draw_healthy(signatures, "idle", 2, seconds, rng)])
    span = JobSpan("7", "n1", (0, 1), 0, seconds, "np", anomaly="bad-io", onset_s=600)
    values = (ticks / np.float32(100)).astype(np.float32)
    return Trace("n1", (0, 1, 2, 3), 0, CPU, values, np.ones((4, seconds), np.bool_), (span,))


@pytest.fixture(scope="module")
def told() -> list[tuple[Event, str]]:
    """Every change of every event that the detector that ships makes of it, with its sentence."""
    tracker, said, detector = Tracker(), [], bundled()
    for moment, _ in moments([drifting()], every_s=20):
        scores = detector.score(moment)
        for change in tracker.update(moment, scores, detector.threshold):
            why = explain(detector, moment, scores, rows_of(moment, change.event))
            said.append((change.event, why.sentence if why else ""))
    return said


def test_a_job_that_drifts_into_bad_io_is_told_of_by_its_distance_and_the_sentence_names_iowait(told):
    by_distance = [(event, sentence) for event, sentence in told if event.view == NAMING_VIEW]
    assert by_distance
    assert {event.jobs for event, _ in by_distance} == {("7",)}
    assert all("iowait was" in sentence for _, sentence in by_distance if sentence)
    # A quarter of the seconds in bad I/O look like slow I/O; all of them like nothing else.
    assert "-io, where normal threads keep" in by_distance[0][1]
    assert "from bad-io, where normal threads keep" in [sentence for _, sentence in by_distance if sentence][-1]


def test_before_it_drifts_nothing_is_told(told):
    assert min(event.seen_s for event, _ in told) > 600
