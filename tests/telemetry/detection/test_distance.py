"""Distances small enough to check by hand, and a job that slowly drifts into bad I/O."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.event_rows import rows_of
from clustertwin.telemetry.detection.events.explanation import explain
from clustertwin.telemetry.detection.events.tracker import Tracker
from clustertwin.telemetry.detection.scores import NAMING_VIEW
from clustertwin.telemetry.detection.views.contract import DetectorSettings
from clustertwin.telemetry.detection.views.distance import DistanceView, FaultRegions, closest, fit_distances, proximity
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.simulation.anomalies import draw_afflicted, draw_healthy
from clustertwin.telemetry.simulation.signature import read_signatures

REGIONS = FaultRegions(("bad-io", "throttled"), np.array([[3, 4], [0, 1]], np.float32))


def test_distances_are_those_of_the_embedding():
    threads = np.array([[0, 0], [3, 3]], np.float32)
    np.testing.assert_allclose(REGIONS.distances(threads), [[5, 1], [1, np.sqrt(13)]], rtol=1e-5)


def test_a_region_among_normal_threads_raises_no_alarm_and_one_far_from_them_does():
    rng = np.random.default_rng(0)
    normal = REGIONS.distances(rng.normal([0, 1], 0.3, (5000, 2)).astype(np.float32))  # around the second region
    table = fit_distances(normal, 1e-3)
    fresh = REGIONS.distances(rng.normal([0, 1], 0.3, (5000, 2)).astype(np.float32))
    assert (table.surprise(fresh) > 3).mean() < 4e-3
    drifted = REGIONS.distances(np.array([[2.9, 4.1], [0, 1.05]], np.float32))
    surprise = table.surprise(drifted)
    assert surprise[0] > 4.5 > surprise[1]


def test_the_closest_fault_is_relative_to_the_distance_of_normal_threads():
    table = fit_distances(np.tile(np.array([[4.0, 0.5]], np.float32), (50, 1)), 1e-3)
    distances = np.array([[3.0, 0.49], [1.0, 2.0]], np.float32)
    fault = closest(REGIONS.names, distances, [table], 0.999)
    assert (fault.name, fault.distance, fault.normal_distance, fault.farther_ratio) == ("bad-io", 1.0, 4.0, 0.999)
    assert (proximity(distances, table.quantile) > 0).tolist() == [[True, True], [True, False]]


def test_without_regions_or_tables_no_fault_is_the_closest():
    embedding, allocation = np.zeros((2, 2), np.float32), np.zeros(2, np.int8)
    assert DistanceView(DetectorSettings()).closest_fault(embedding, allocation) is None
    assert DistanceView(DetectorSettings(), REGIONS).closest_fault(embedding, allocation) is None


def drifting(seconds: int = 1800, seed: int = 0) -> Trace:
    """A node of four threads. On two of them runs an np job with a growing share of seconds of bad I/O."""
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
def history() -> list[tuple[Event, str]]:
    """Every change of every event that the bundled detector reports, with its explanation."""
    tracker, changes, detector = Tracker(), [], bundled()
    for moment, _ in moments([drifting()], every_s=20):
        scores = detector.score(moment)
        for change in tracker.update(moment, scores, detector.threshold):
            explanation = explain(detector, moment, scores, rows_of(moment, change.event))
            changes.append((change.event, explanation.sentence if explanation else ""))
    return changes


@pytest.mark.medium
def test_a_job_that_drifts_into_bad_io_is_reported_by_the_distance_view_and_the_text_names_iowait(history):
    by_distance = [(event, sentence) for event, sentence in history if event.view == NAMING_VIEW]
    assert by_distance
    assert {event.jobs for event, _ in by_distance} == {("7",)}
    assert all("iowait was" in sentence for _, sentence in by_distance if sentence)
    # With a quarter of the seconds in bad I/O, slow I/O is the closest fault; with all of them, bad I/O is.
    assert "I/O (distance" in by_distance[0][1]
    last = [sentence for _, sentence in by_distance if sentence][-1]
    assert "Closest known fault: bad I/O (distance" in last
    assert "99.9 % of normal threads are farther than" in last


def test_nothing_is_reported_before_the_drift(history):
    assert min(event.seen_s for event, _ in history) > 600
