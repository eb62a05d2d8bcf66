"""Whole clusters: no thread is held twice, labels match the traces, and the same seed gives the same bytes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.simulated_rounds import write_rounds
from clustertwin.telemetry.recording import Recording, find
from clustertwin.telemetry.simulation.anomalies import ANOMALIES, available_anomalies
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.placement import PlacementRequest, place_jobs
from clustertwin.telemetry.simulation.simulated_cluster import simulate

SMALL = ClusterSettings(nodes=3, threads=8, hours=0.5, job_s=(120, 400), anomaly_ratio=0.6)


@pytest.fixture(scope="module")
def traces(signatures, drawable):
    return simulate(replace(SMALL, hours=2, anomalies=drawable), signatures, seed=1)


@settings(max_examples=settings.default.max_examples // 4)
@given(
    nodes=st.integers(1, 5),
    threads=st.integers(1, 9),
    widths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_thread_is_ever_held_by_two_jobs(nodes, threads, widths, seed):
    fitting = [w for w in widths if w <= threads] or [1]

    def draw_request(rng):
        return PlacementRequest("np", int(rng.choice(fitting)), int(rng.integers(5, 200)))

    held = np.zeros((nodes, threads, 600), int)
    for job in place_jobs(draw_request, nodes, threads, 600, np.random.default_rng(seed)):
        assert 0 <= job.start < job.end <= 600
        assert sum(len(allocation.cpus) for allocation in job.allocations) == job.request.threads
        for allocation in job.allocations:
            held[allocation.node, list(allocation.cpus), job.start : job.end] += 1
    assert held.max() == 1


def test_ratios_are_whole_ticks_that_sum_to_one(traces):
    for trace in traces:
        ticks = trace.values * 100
        assert np.abs(ticks - np.rint(ticks)).max() < 1e-4
        assert np.abs(trace.values.sum(axis=-1) - 1).max() < 1e-6
        assert trace.valid.all()


def test_the_spans_hold_each_thread_at_most_once(traces):
    for trace in traces:
        held = np.zeros(trace.valid.shape, int)
        for span in trace.spans:
            first, last = int(span.start_s) - trace.start_s, int(span.end_s) - trace.start_s
            held[list(span.cpus), first:last] += 1
        assert held.max() == 1
        assert held.mean() > 0.5


def test_a_thread_without_a_job_is_idle(traces):
    for trace in traces:
        free = np.ones(trace.valid.shape, bool)
        for span in trace.spans:
            free[list(span.cpus), int(span.start_s) - trace.start_s : int(span.end_s) - trace.start_s] = False
        assert trace.values[free, 3].min() >= 0.9


def test_bad_io_waits_from_its_start_and_a_throttled_thread_from_its_onset(traces):
    counts = Counter()
    for trace in traces:
        for span in trace.spans:
            since = (span.onset_s or span.start_s) - trace.start_s
            after = trace.values[list(span.cpus), int(since) + 1 : int(span.end_s) - trace.start_s - 1]
            if span.anomaly == "bad-io":
                assert after[..., 2].mean() > 0.7
            elif span.anomaly == "throttled":
                before = trace.values[list(span.cpus), int(span.start_s) - trace.start_s + 1 : int(since)]
                assert len(span.cpus) == 1
                assert after[..., 0].max() < 0.75 < before[..., 0].min()
            counts[span.anomaly] += 1
    assert counts["bad-io"]
    assert counts["throttled"]


def test_one_anomalous_rank_and_its_peers_are_labelled(traces):
    spans = [span for trace in traces for span in trace.spans if span.anomaly.startswith("straggler-x2")]
    jobs = {span.job for span in spans}
    assert jobs
    for job in jobs:
        afflicted = [s for s in spans if s.job == job and s.anomaly == "straggler-x2"]
        peers = [s for s in spans if s.job == job and s.anomaly == "straggler-x2/peer"]
        ranks = int(afflicted[0].job_type.removeprefix("mpi-"))
        assert [len(s.cpus) for s in afflicted] == [1]
        assert sum(len(s.cpus) for s in peers) == ranks - 1
        assert {s.onset_s for s in peers} == {afflicted[0].onset_s}


def test_wide_jobs_span_nodes(signatures):
    wide = ClusterSettings(nodes=3, threads=8, hours=0.5, job_types=("mpi-16",), job_s=(60, 90))
    spans = [span for trace in simulate(wide, signatures, seed=2) for span in trace.spans]
    nodes_of = Counter(span.job for span in spans)
    assert set(nodes_of.values()) == {2}


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(signatures):
    first, same, other = (simulate(SMALL, signatures, seed) for seed in (3, 3, 4))
    assert [t.values.tobytes() for t in first] == [t.values.tobytes() for t in same]
    assert [t.spans for t in first] == [t.spans for t in same]
    assert [t.values.tobytes() for t in first] != [t.values.tobytes() for t in other]


def test_anomalies_need_their_recorded_signature(signatures):
    assert "memory-leak" not in available_anomalies(signatures)
    with pytest.raises(SettingsError, match="memory-leak"):
        simulate(ClusterSettings(anomalies=("memory-leak",)), signatures, seed=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nodes": 0}, "a cluster needs at least one node"),
        ({"hours": 0.0}, "a cluster needs at least one node"),
        ({"job_s": (100.0, 10.0)}, "invalid range of job lengths"),
        ({"anomalies": ("gremlins",)}, "unknown anomaly 'gremlins'"),
        ({"job_types": ("mpi-64",), "nodes": 1}, "none of the job types mpi-64 fits"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(SettingsError, match=message):
        ClusterSettings(**wrong)


@pytest.mark.slow
def test_rounds_are_recordings_of_one_split_each_with_anomalies_only_in_test(signatures, drawable, tmp_path):
    tiny = replace(SMALL, nodes=2, anomalies=drawable)
    written = list(write_rounds(tmp_path, tiny, signatures, rounds=3, seed=5))
    assert [row.split for row in written] == ["train", "validation", "test"]
    recordings = [Recording.open(directory) for directory in find(tmp_path)]
    assert len({recording.campaign for recording in recordings}) == 3
    assert len({recording.start_s for recording in recordings}) == 3
    for recording in recordings:
        anomalous = {span.anomaly for span in recording.spans} - {""}
        assert bool(anomalous) == (recording.split == "test")


def test_a_recording_reads_back_as_it_was_simulated(signatures, tmp_path):
    tiny = ClusterSettings(nodes=2, threads=4, hours=0.1, job_s=(60, 120))
    list(write_rounds(tmp_path, tiny, signatures, rounds=1, seed=6))
    recording = Recording.open(tmp_path / "round-000")
    seed = int(np.random.SeedSequence((6, 0)).generate_state(1)[0])
    for trace in simulate(tiny, signatures, seed):
        read = recording.trace(trace.node)
        assert np.abs(read.values - trace.values).max() < 1e-6
        assert set(read.spans) == set(trace.spans)


def test_every_anomaly_affects_a_job_type_of_the_default_mix():
    families = {name.split("-")[0] if name.startswith("mpi") else name for name in ClusterSettings().job_types}
    for name, row in ANOMALIES.items():
        assert name == "bad-io" or set(row.job_types) <= families
