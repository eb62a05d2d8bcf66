"""Which moments of a day are sampled for which role, and what is masked."""

from dataclasses import replace
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.telemetry.learning.conftest import small_day

from clustertwin.core.errors import RecordingError
from clustertwin.telemetry.learning.night.calendar_day import day_of
from clustertwin.telemetry.learning.night.day_sampling import ROLES, SamplingSettings, plan_moments, sample_day
from clustertwin.telemetry.learning.night.training_windows import subsample, training_windows
from clustertwin.telemetry.learning.night.verdicts import VettedSpan
from clustertwin.telemetry.moments.moment import LENGTH_S
from clustertwin.telemetry.moments.moment_files import read_moments, write_moments
from clustertwin.telemetry.recording import Recorder
from clustertwin.telemetry.recording.trace_archive import MemoryArchive, RecordingArchive


@given(st.integers(0, 10**6), st.integers(1, 200))
def test_no_second_is_in_two_roles_and_all_are_in_the_day(length_s, count):
    plan = plan_moments(0, length_s, count)
    assert all(300 <= end_s <= length_s for _, end_s in plan)
    ends = sorted((end_s, role) for role, end_s in plan)
    for (a, role_a), (b, role_b) in pairwise(ends):
        assert role_a == role_b or b - a >= 300
    assert {role for role, _ in plan} in (set(), set(ROLES))


def test_confirmed_anomalies_are_excluded():
    day, traces = small_day(1)
    node, end_s = traces[0].node, day.start_s + 7200
    complete, _ = sample_day(day, MemoryArchive(traces), [], SamplingSettings(30, 0))
    verdicts = [VettedSpan(node, (0, 1), day.start_s, end_s, "confirmed"), VettedSpan(node, (), 0, 1, "maintenance")]
    masked, census = sample_day(day, MemoryArchive(traces), verdicts, SamplingSettings(30, 0))
    windows = training_windows(masked.train)
    threads = set(zip(windows.node, windows.cpu, strict=True))
    assert (node, 0) not in threads
    assert (node, 1) not in threads
    assert (node, 2) in threads
    assert census.left_out_s["confirmed"] == 2 * 300 * sum(len(getattr(complete, role)) for role in ROLES)


def test_dismissed_and_new_normal_events_are_learned():
    day, traces = small_day(1)
    verdicts = [VettedSpan(traces[0].node, (), 0, 1e12, verdict) for verdict in ("dismissed", "new-normal")]
    vetted, unvetted = (
        sample_day(day, MemoryArchive(traces), some, SamplingSettings(30, 0))[0] for some in (verdicts, [])
    )
    assert len(training_windows(vetted.train)) == len(training_windows(unvetted.train))


def test_a_moment_of_a_large_cluster_has_random_nodes_and_the_census_has_all():
    day, traces = small_day(1)
    split, census = sample_day(day, MemoryArchive(traces), [], SamplingSettings(30, 0, threads=20))
    nodes_of_moments = [moment.nodes for role in ROLES for moment in getattr(split, role)]
    assert {len(nodes) for nodes in nodes_of_moments} == {1}
    assert {node for nodes in nodes_of_moments for node in nodes} == set(census.seen) == {"n01", "n02"}
    assert census.threads == 32


def test_a_maintenance_window_masks_only_its_seconds():
    day, traces = small_day(1)
    verdicts = [VettedSpan(trace.node, (), day.start_s, day.start_s + 1800, "maintenance") for trace in traces]
    split, _ = sample_day(day, MemoryArchive(traces), verdicts, SamplingSettings(30, 0))
    starts_s = training_windows(split.train).start_s
    assert starts_s.min() >= day.start_s + 1800 - 20  # 80 % of a window must be valid


@pytest.mark.parametrize(
    ("pattern", "covered"), [("*", {"n01", "n02"}), ("n01", {"n01"}), ("n0[2-9]", {"n02"}), ("N01", set())]
)
def test_maintenance_covers_the_nodes_that_its_pattern_matches(pattern, covered):
    day, traces = small_day(1)
    maintenance = VettedSpan(pattern, (), day.start_s, day.end_s, "maintenance")
    _, census = sample_day(day, MemoryArchive(traces), [maintenance], SamplingSettings(10, 0))
    assert {node for node, part in census.seen.items() if part == 0} == covered


def test_the_node_of_an_event_is_not_a_pattern():
    assert not VettedSpan("n*", (), 0, 1, "confirmed").covers("n1")
    assert VettedSpan("[::1]:9752", (), 0, 1, "confirmed").covers("[::1]:9752")


def test_a_day_without_data_has_an_empty_census():
    _, traces = small_day(1)
    later, _ = small_day(2)
    split, census = sample_day(later, MemoryArchive(traces), [], SamplingSettings(30, 0))
    assert (split.train, census.seen, census.windows) == ((), {}, 0)


def test_values_that_are_not_numbers_are_masked_and_counted():
    day, traces = small_day(1)
    broken = replace(traces[0], values=np.full_like(traces[0].values, np.nan))
    split, census = sample_day(day, MemoryArchive([broken, *traces[1:]]), [], SamplingSettings(30, 0))
    assert census.seen[broken.node] == 0
    assert census.left_out_s["not a number"] > 0
    assert set(training_windows(split.train).node) == {trace.node for trace in traces[1:]}


def test_a_clock_that_jumps_past_midnight_costs_only_the_skipped_seconds():
    """The recording stops before midnight and continues in the next day: the remaining seconds are used."""
    day, traces = small_day(1)
    gap = [replace(t, valid=t.valid & (np.arange(7200) < 4800)) for t in traces]
    split, census = sample_day(day, MemoryArchive(gap), [], SamplingSettings(30, 0))
    assert all(0.5 < part < 0.8 for part in census.seen.values())
    assert split.held_out


@pytest.mark.parametrize(("name", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_when_clocks_change_the_plan_covers_exactly_the_day(name, hours):
    day = day_of(name, ZoneInfo("Europe/Berlin"))
    ends = [end_s for _, end_s in plan_moments(day.start_s, day.end_s, 150)]
    assert min(ends) >= day.start_s + LENGTH_S
    assert max(ends) == day.end_s == day.start_s + hours * 3600


def test_moments_are_the_same_after_writing_and_reading(tmp_path):
    day, traces = small_day(1)
    moments = sample_day(day, MemoryArchive(traces), [], SamplingSettings(10, 0))[0].validation
    write_moments(tmp_path / "m.safetensors", moments)
    for written, read in zip(moments, read_moments(tmp_path / "m.safetensors"), strict=True):
        assert (written.end_s, written.schema, written.nodes, written.jobs) == (
            read.end_s,
            read.schema,
            read.nodes,
            read.jobs,
        )
        np.testing.assert_allclose(written.values, read.values, atol=1 / 2048)
        for name in ("valid", "node", "cpu", "job", "age_s"):
            np.testing.assert_array_equal(getattr(written, name), getattr(read, name))


def test_the_error_for_damaged_moments_names_the_file(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(RecordingError, match="not a file of moments"):
        read_moments(tmp_path / "m.safetensors")


def test_a_recording_gives_the_same_moments_as_its_traces(tmp_path):
    day, traces = small_day(1)
    with Recorder.create(tmp_path / "r", {t.node: t.cpus for t in traces}) as recorder:
        for trace in traces:
            recorder.append(trace)
            for span in trace.spans:
                recorder.label(span)
    recorded, census = sample_day(day, RecordingArchive([tmp_path]), [], SamplingSettings(10, 0))
    direct, _ = sample_day(day, MemoryArchive(traces), [], SamplingSettings(10, 0))
    recorded_windows, direct_windows = training_windows(recorded.train), training_windows(direct.train)
    assert census.windows > 0
    np.testing.assert_allclose(recorded_windows.values, direct_windows.values, atol=0.006)
    np.testing.assert_array_equal(recorded_windows.job, direct_windows.job)


def test_a_subsample_keeps_all_windows_of_a_node_at_a_moment():
    day, traces = small_day(1)
    windows = training_windows(sample_day(day, MemoryArchive(traces), [], SamplingSettings(30, 0))[0].train)
    few = subsample(windows, 80, 0)
    assert 0 < len(few) <= 80
    for node, start_s in set(zip(few.node, few.start_s, strict=True)):
        group = (windows.node == node) & (windows.start_s == start_s)
        assert ((few.node == node) & (few.start_s == start_s)).sum() == group.sum()


@pytest.mark.medium
def test_a_small_machine_gets_closer_moments_and_its_evidence_is_counted_once():
    """Two threads, 90 minutes: at most 108 windows of which no two share a second of a thread."""
    day, traces = small_day(1)
    small = [replace(traces[0], cpus=(0, 1), values=traces[0].values[:2, :5400], valid=traces[0].valid[:2, :5400])]
    split, census = sample_day(day, MemoryArchive(small), [], SamplingSettings())
    sparse, _ = sample_day(day, MemoryArchive(small), [], SamplingSettings(windows=0))
    assert len(split.train) > 5 * len(sparse.train)
    assert census.windows > 5 * census.independent_windows
    assert 36 <= census.independent_windows <= 108
    assert census.thread_hours == census.independent_windows / 36
    assert census.jobs >= 2
    assert 1 <= len(census.job_types) <= census.jobs


@pytest.mark.parametrize("verdict", ["", "new-normal"])
def test_threads_that_wait_for_a_disk_are_not_learned_unless_a_person_called_them_normal(verdict):
    day, traces = small_day(1)
    values = traces[0].values.copy()
    values[0] = (0.2, 0.1, 0.7, 0.0)
    verdicts = [VettedSpan(traces[0].node, (0,), 0, 1e12, verdict)] if verdict else []
    stalled = [replace(traces[0], values=values), *traces[1:]]
    split, census = sample_day(day, MemoryArchive(stalled), verdicts, SamplingSettings(30, 0))
    known = [moment.valid[0].any() for moment in split.train]
    assert all(known) if verdict else not any(known)
    assert ("waits for a disk" in census.left_out_s) == (not verdict)
