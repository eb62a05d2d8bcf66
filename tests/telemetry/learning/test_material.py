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
from clustertwin.telemetry.learning.night.challengers import thin
from clustertwin.telemetry.learning.night.night_data import TURNS, gather, plan, windows_of
from clustertwin.telemetry.learning.night.verdicts import Vetted
from clustertwin.telemetry.moments.moment import LENGTH_S
from clustertwin.telemetry.moments.moment_files import read_moments, write_moments
from clustertwin.telemetry.recording import Recorder
from clustertwin.telemetry.recording.trace_archive import MemoryArchive, RecordingArchive


@given(st.integers(0, 10**6), st.integers(1, 200))
def test_no_second_is_in_two_roles_and_all_lie_in_the_day(length_s, count):
    times = plan(0, length_s, count)
    assert all(300 <= end_s <= length_s for _, end_s in times)
    ends = sorted((end_s, role) for role, end_s in times)
    for (a, role_a), (b, role_b) in pairwise(ends):
        assert role_a == role_b or b - a >= 300
    assert {role for role, _ in times} in (set(), set(TURNS))


def test_what_was_confirmed_is_not_learned():
    day, traces = small_day(1)
    node, end_s = traces[0].node, day.start_s + 7200
    whole, _ = gather(day, MemoryArchive(traces), [], 30)
    said = [Vetted(node, (0, 1), day.start_s, end_s, "confirmed"), Vetted(node, (), 0, 1, "maintenance")]
    less, census = gather(day, MemoryArchive(traces), said, 30)
    cpus = {(n, c) for n, c in zip(windows_of(less.train).node, windows_of(less.train).cpu, strict=True)}
    assert (node, 0) not in cpus
    assert (node, 1) not in cpus
    assert (node, 2) in cpus
    assert census.left_out_s["confirmed"] == 2 * 300 * sum(
        len(getattr(whole, r)) for r in ("train", "validation", "held_out")
    )


def test_dismissed_and_new_normal_are_learned():
    day, traces = small_day(1)
    said = [Vetted(traces[0].node, (), 0, 1e12, verdict) for verdict in ("dismissed", "new-normal")]
    ours, theirs = (gather(day, MemoryArchive(traces), some, 30)[0] for some in (said, []))
    assert len(windows_of(ours.train)) == len(windows_of(theirs.train))


def test_of_a_large_cluster_each_moment_shows_whole_nodes_by_lot_and_the_census_all():
    day, traces = small_day(1)
    material, census = gather(day, MemoryArchive(traces), [], 30, threads=20)
    shown = [moment.nodes for moment in (*material.train, *material.validation, *material.held_out)]
    assert {len(nodes) for nodes in shown} == {1}
    assert {node for nodes in shown for node in nodes} == set(census.seen) == {"n01", "n02"}
    assert census.threads == 32


def test_a_maintenance_window_masks_its_seconds_only():
    day, traces = small_day(1)
    said = [Vetted(trace.node, (), day.start_s, day.start_s + 1800, "maintenance") for trace in traces]
    material, _ = gather(day, MemoryArchive(traces), said, 30)
    starts_s = windows_of(material.train).start_s
    assert starts_s.min() >= day.start_s + 1800 - 20  # four fifths of a window are enough


@pytest.mark.parametrize(
    ("pattern", "covered"), [("*", {"n01", "n02"}), ("n01", {"n01"}), ("n0[2-9]", {"n02"}), ("N01", set())]
)
def test_maintenance_holds_for_the_nodes_that_its_pattern_matches(pattern, covered):
    day, traces = small_day(1)
    _, census = gather(day, MemoryArchive(traces), [Vetted(pattern, (), day.start_s, day.end_s, "maintenance")], 10)
    assert {node for node, part in census.seen.items() if part == 0} == covered


def test_a_verdict_on_a_node_is_no_pattern():
    assert not Vetted("n*", (), 0, 1, "confirmed").holds("n1")
    assert Vetted("[::1]:9400", (), 0, 1, "confirmed").holds("[::1]:9400")


def test_nothing_known_is_an_empty_census():
    _, traces = small_day(1)
    later, _ = small_day(2)
    material, census = gather(later, MemoryArchive(traces), [], 30)
    assert (material.train, census.seen, census.windows) == ((), {}, 0)


def test_not_a_number_is_masked_and_counted():
    day, traces = small_day(1)
    broken = replace(traces[0], values=np.full_like(traces[0].values, np.nan))
    material, census = gather(day, MemoryArchive([broken, *traces[1:]]), [], 30)
    assert census.seen[broken.node] == 0
    assert census.left_out_s["not a number"] > 0
    assert set(windows_of(material.train).node) == {trace.node for trace in traces[1:]}


def test_a_clock_that_jumped_over_midnight_costs_its_seconds_only():
    """The recording stops a while before midnight and goes on in the next day: what is there is used."""
    day, traces = small_day(1)
    gap = [replace(t, valid=t.valid & (np.arange(7200) < 4800)) for t in traces]
    material, census = gather(day, MemoryArchive(gap), [], 30)
    assert all(0.5 < part < 0.8 for part in census.seen.values())
    assert material.held_out


@pytest.mark.parametrize(("name", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_where_clocks_change_the_whole_day_is_planned_and_no_second_more(name, hours):
    day = day_of(name, ZoneInfo("Europe/Berlin"))
    ends = [end_s for _, end_s in plan(day.start_s, day.end_s, 150)]
    assert min(ends) >= day.start_s + LENGTH_S
    assert max(ends) == day.end_s == day.start_s + hours * 3600


def test_moments_survive_the_disk(tmp_path):
    day, traces = small_day(1)
    moments = gather(day, MemoryArchive(traces), [], 10)[0].validation
    write_moments(tmp_path / "m.safetensors", moments)
    for ours, theirs in zip(moments, read_moments(tmp_path / "m.safetensors"), strict=True):
        assert (ours.end_s, ours.schema, ours.nodes, ours.jobs) == (
            theirs.end_s,
            theirs.schema,
            theirs.nodes,
            theirs.jobs,
        )
        np.testing.assert_allclose(ours.values, theirs.values, atol=1 / 2048)
        for name in ("valid", "node", "cpu", "job", "age_s"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_damaged_moments_are_named(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(RecordingError, match="not a file of moments"):
        read_moments(tmp_path / "m.safetensors")


def test_recordings_give_the_same_material_as_the_traces_in_them(tmp_path):
    day, traces = small_day(1)
    with Recorder.create(tmp_path / "r", {t.node: t.cpus for t in traces}) as recorder:
        for trace in traces:
            recorder.append(trace)
            for span in trace.spans:
                recorder.label(span)
    ours, census = gather(day, RecordingArchive([tmp_path]), [], 10)
    theirs, _ = gather(day, MemoryArchive(traces), [], 10)
    assert census.windows > 0
    np.testing.assert_allclose(windows_of(ours.train).values, windows_of(theirs.train).values, atol=0.006)
    np.testing.assert_array_equal(windows_of(ours.train).job, windows_of(theirs.train).job)


def test_thinning_keeps_whole_nodes_at_whole_moments():
    day, traces = small_day(1)
    windows = windows_of(gather(day, MemoryArchive(traces), [], 30)[0].train)
    few = thin(windows, 80, 0)
    assert 0 < len(few) <= 80
    for node, start_s in set(zip(few.node, few.start_s, strict=True)):
        mine = (windows.node == node) & (windows.start_s == start_s)
        assert ((few.node == node) & (few.start_s == start_s)).sum() == mine.sum()
