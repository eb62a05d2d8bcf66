"""Shadow: a site that is not known is watched, the first night learns it by itself, and then nobody is spared."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.telemetry.learning.conftest import QUICK, SMALL, small_day

from clustertwin.telemetry.learning.champions import champion_store, learning_state, shadow
from clustertwin.telemetry.learning.champions.shadow import ShadowRule, read_shadow, reason_to_end
from clustertwin.telemetry.learning.night.day_sampling import SamplingSettings
from clustertwin.telemetry.learning.night.nightly_cycle import run_night
from clustertwin.telemetry.recording.trace_archive import MemoryArchive
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate
from clustertwin.telemetry.studies.month.unseen_programs import FOREIGN, with_unseen_programs

#: The calibration of such a short day is poor: the end of the shadow must not depend on it.
ENDS = replace(QUICK, shadow=ShadowRule(thread_hours=1.0, strange=1.0))


def test_a_new_home_is_in_shadow_and_the_first_end_stays(tmp_path):
    assert read_shadow(tmp_path).on
    assert read_shadow(tmp_path).covers(1e12)
    learning_state.end_shadow(tmp_path, "learned", 100.0)
    learning_state.end_shadow(tmp_path, "again", 200.0)
    ended = read_shadow(tmp_path)
    assert (ended.on, ended.end_s, ended.because) == (False, 100.0, "learned")
    assert ended.covers(99.0)
    assert not ended.covers(101.0)  # what is still there after the end is raised


def test_a_home_of_an_older_version_that_has_learned_is_not_in_shadow(tmp_path, make_context):
    (tmp_path / "champion.json").write_text(json.dumps({"version": "b", "sha256": "", "fence": 1, "before": ["a"]}))
    (tmp_path / "learning.json").write_text(json.dumps({"night": "2026-01-01", "outcome": "promoted"}))
    assert read_shadow(tmp_path) == shadow.NO_SHADOW
    assert not shadow.begin(tmp_path).on


def test_a_champion_alone_does_not_end_the_shadow_of_a_home_that_began_in_it(tmp_path):
    shadow.begin(tmp_path)
    (tmp_path / "champion.json").write_text(json.dumps({"version": "b", "sha256": "", "fence": 1, "before": ["a"]}))
    assert read_shadow(tmp_path).on


def test_the_shadow_ends_by_evidence():
    rule = ShadowRule(thread_hours=2.0, strange=0.1, known_hours=24.0, known_days=2)
    assert "learned here from 2.0 thread-hours" in reason_to_end(rule, [2.0], 0.1, learned_here=True)
    assert reason_to_end(rule, [1.9], 0.0, learned_here=True) == ""
    assert reason_to_end(rule, [9.0], 0.11, learned_here=True) == ""


def test_the_shadow_ends_where_the_shipped_detector_is_quiet():
    assert "the shipped one" in reason_to_end(ShadowRule(), [2.0], 0.0, learned_here=False)


def test_the_shadow_ends_after_enough_was_watched_whatever_the_detector_says():
    assert reason_to_end(ShadowRule(), [23.0, 1.0], 1.0, learned_here=False).startswith("24.0 thread-hours of 2 days")
    assert reason_to_end(ShadowRule(), [23.0, 0.9], 1.0, learned_here=False) == ""
    assert reason_to_end(ShadowRule(), [500.0], 1.0, learned_here=False) == ""  # one day has no other day to compare


def test_a_day_that_is_counted_twice_counts_once(tmp_path):
    for hours in (3.0, 4.0):
        learning_state.add_shadow_evidence(tmp_path, "2026-03-04", hours)
    assert learning_state.add_shadow_evidence(tmp_path, "2026-03-03", 1.0).shadow_hours == {
        "2026-03-03": 1.0,
        "2026-03-04": 4.0,
    }


def test_nights_that_are_all_skipped_end_the_shadow_once_enough_was_watched(make_context):
    """A site whose days are too short to learn from is watched for as long as any other."""
    day, traces = small_day(2)
    short = [replace(trace, values=trace.values[:, :1200], valid=trace.valid[:, :1200]) for trace in traces]
    needs = replace(QUICK, limits=replace(QUICK.limits, thread_hours=1e6), shadow=ShadowRule(known_hours=1e-3))
    context, _ = make_context(2, archive=MemoryArchive(short), settings=needs)
    first = run_night(context, day)
    assert (first.outcome, first.shadow_ended) == ("skipped", "")
    assert any("still in shadow" in note for note in first.notes)
    learning_state.add_shadow_evidence(context.home, "2020-01-01", 1.0)
    night = run_night(context, day)
    assert night.outcome == "skipped"
    assert "of 2 days were watched" in night.shadow_ended
    assert not read_shadow(context.home).on


def foreign_day(number):
    """A day of a site whose programs and idle threads are unlike those that the champion knows."""
    day, _ = small_day(number)
    settings = replace(SMALL, start_s=day.start_s, job_types=tuple(FOREIGN))
    return day, simulate(settings, with_unseen_programs(read_signatures(), foreign=True), number)


@pytest.mark.slow
def test_the_first_night_on_a_foreign_site_adopts_by_itself_and_a_later_flood_is_skipped(make_context):
    day, traces = foreign_day(2)
    context, _ = make_context(2, archive=MemoryArchive(traces), settings=ENDS)
    night = run_night(context, day)
    assert night.outcome == "promoted", night
    alarming = next(row for row in night.contestants if row["name"] == "champion")["false_alarms"]
    assert alarming > ENDS.limits.drift  # once the site is known, that is a reason to skip a night
    assert night.shadow_ended
    assert not read_shadow(context.home).on
    assert any("the shadow ends" in note for note in night.notes)

    champion_store.rollback(context.home, 10**6, 0.0)  # the flooding champion again, on a site that is known now
    day, traces = foreign_day(3)
    later, _ = make_context(3, archive=MemoryArchive(traces), settings=ENDS, home=context.home)
    assert "the champion alarms on" in run_night(later, day).because


@pytest.mark.slow
def test_a_host_of_two_threads_learns_from_ninety_minutes(make_context):
    day, traces = small_day(2)
    host = replace(traces[0], cpus=(0, 1), values=traces[0].values[:2, :5400], valid=traces[0].valid[:2, :5400])
    spans = [replace(span, cpus=tuple(cpu for cpu in span.cpus if cpu < 2)) for span in host.spans]
    host = replace(host, spans=tuple(span for span in spans if span.cpus))
    settings = replace(QUICK, sampling=SamplingSettings())
    night = run_night(make_context(2, archive=MemoryArchive([host]), settings=settings)[0], day)
    assert night.outcome in ("promoted", "kept"), night.because
    figures = [(row["error"], row["bits"], row["false_events"]) for row in night.contestants]
    assert len(figures) == 2
    assert np.isfinite(figures).all()


def test_a_day_of_jobs_that_never_settle_is_skipped_by_its_evidence(make_context):
    """Every thread is held by a job that began less than 100 s ago."""
    day, traces = small_day(2)
    restless = [
        replace(
            trace,
            spans=tuple(
                replace(trace.spans[0], job=f"{trace.node}-{start}", cpus=trace.cpus, start_s=start, end_s=start + 90.0)
                for start in range(trace.start_s, trace.end_s, 90)
            ),
        )
        for trace in traces
    ]
    context, _ = make_context(2, archive=MemoryArchive(restless))
    night = run_night(context, day)
    assert night.outcome == "skipped"
    assert "thread-hours are needed" in night.because
