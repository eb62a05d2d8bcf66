from dataclasses import replace

import numpy as np
import pytest
from tests.telemetry.learning.conftest import small_day

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.detection.batch_scoring import score_batches
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.learning.night.challengers import Training
from clustertwin.telemetry.learning.night.verdicts import Vetted
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import node_names
from clustertwin.telemetry.studies.month.month_report import Lived, draw, read_days, summarise, write_days
from clustertwin.telemetry.studies.month.month_study import MonthSettings, _Life, _pulled, run_month
from clustertwin.telemetry.studies.month.simulated_month import World, fail, live
from clustertwin.telemetry.studies.month.simulated_vetting import People, Said, vet
from clustertwin.telemetry.studies.month.simulated_watch import Watched, watch

SMALL_WORLD = World(nodes=2, threads=8, hours=0.5)
DAYS = [
    Lived(1, True, 0.2, 4.0, 0, 0, 0.01, 0, 1.0, 0.9, 0.1, "promoted", 1800.0),
    Lived(2, False, 0.4, 2.0, 4, 3, 0.02, 2, 0.7, 0.8, 0.3, "halted", 1800.0),
]


def test_a_failing_disk_makes_those_wait_longer_who_wait_and_on_one_node_only():
    sound = live(SMALL_WORLD, 3, read_signatures(), 0)
    for before, after in zip(sound, fail(SMALL_WORLD, sound, 1.0), strict=True):
        np.testing.assert_allclose(after.values.sum(-1), 1, atol=1e-5)
        factor = 2 if after.node == SMALL_WORLD.creeping_node else 1
        odds = [np.array(v[..., 2] / np.maximum(1 - v[..., 2], 1e-3)) for v in (before.values, after.values)]
        mild = before.values[..., 2] < 0.9
        np.testing.assert_allclose(odds[1][mild], factor * odds[0][mild], atol=1e-4, rtol=1e-3)


def test_new_hardware_and_new_jobs_come_on_their_days():
    assert [day for day in range(31) if World().brings_new(day)] == [6, 10, 15, 20]
    assert [World().changed(day) for day in (5, 6, 9, 14, 30)] == [-100, 6, 6, 10, 20]
    types = [
        {span.job_type for t in live(SMALL_WORLD, day, read_signatures(), 0) for span in t.spans} for day in (0, 11)
    ]
    assert types[0] <= {"np", "good-io", "mpi-2"}
    assert types[1] <= {"np", "good-io", "mpi-8", "render"}
    worlds = replace(SMALL_WORLD, new_hardware=99), SMALL_WORLD
    old, new = (live(world, 17, read_signatures(), 0)[1].values.mean((0, 1)) for world in worlds)
    assert new[1] - old[1] == pytest.approx(0.1 * old[0], rel=1e-3)


def test_a_new_kind_is_unlike_the_recorded_one_and_who_uses_a_disk_waits_for_it():
    def of(kind):
        (trace,) = live(World(nodes=1, threads=8, hours=0.5, mix=((0, (kind,)),)), 1, read_signatures(), 0)
        spans = [span for span in trace.spans if span.job_type == kind]
        parts = [
            trace.values[list(s.cpus), int(s.start_s) - trace.start_s : int(s.end_s) - trace.start_s] for s in spans
        ]
        return np.concatenate([part.reshape(-1, 4) for part in parts]).mean(0)

    np_, render, good_io = of("np"), of("render"), of("good-io")
    assert render[0] == pytest.approx(0.75 * np_[0], rel=0.03)
    assert np_[2] < 0.001
    assert 0.02 < good_io[2] < 0.08


def test_nothing_is_wrong_on_the_days_that_the_first_champion_learns_from():
    days = [live(SMALL_WORLD, day, read_signatures(), 0) for day in range(-4, 1)]
    assert not [span for traces in days for trace in traces for span in trace.spans if span.anomaly]


def test_on_the_holiday_jobs_wait_badly_for_their_disk():
    traces = live(replace(SMALL_WORLD, nodes=4), 26, read_signatures(), 0)
    jobs = {span.job: span.anomaly for trace in traces for span in trace.spans}
    assert set(jobs.values()) == {"", "bad-io"}
    assert 0.1 < np.mean([anomaly != "" for anomaly in jobs.values()]) < 0.5


def test_the_row_of_a_month_on_paper():
    row = summarise("x", DAYS)
    assert (row.error, row.false_events, row.found) == (pytest.approx(0.3), 3.0, 0.75)
    assert row.false_usual == 2.0  # the first day brought something new
    assert (row.disk_days, row.disk_sight) == (1.0, 0.7)
    assert (row.golden, row.golden_worst, row.forgetting) == (pytest.approx(0.85), 0.8, pytest.approx(3.0))
    assert (row.promoted, row.halted, row.training_h) == (1, 1, 1.0)


def test_a_disk_that_nobody_found_has_no_day():
    assert np.isnan(summarise("x", DAYS[:1]).disk_days)


def test_days_are_written_read_and_drawn(tmp_path):
    write_days(tmp_path / "x.json", DAYS)
    again = read_days(tmp_path / "x.json")
    assert again == DAYS
    draw({"x": again}, tmp_path / "month.png")
    assert (tmp_path / "month.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("changed", "harmless"), [(-100, "dismissed"), (1, "dismissed"), (2, "new-normal")])
def test_people_are_late_and_mistaken_as_often_as_they_say_and_get_the_disk_replaced(changed, harmless):
    events = [Event(f"{n}", (("n1", (0,)),), (), "", 500, 600, None, 9.0, "density", "") for n in range(600)]
    disk, job = ({f"{n}" for n in numbers} for numbers in (range(200), range(200, 400)))
    watched = Watched(tuple(events), frozenset(disk | job), frozenset(disk), 0, 0, 1.0, 0.1)
    vetted = vet(People(), 6, watched, changed, np.random.default_rng(0))
    said = dict(zip(sorted(e.id for e in events), vetted, strict=True))
    confirmed = {name for name, one in said.items() if one.vetted.verdict == "confirmed"}
    assert len(confirmed & (disk | job)) == pytest.approx(360, abs=20)
    assert len(confirmed - disk - job) == pytest.approx(2, abs=4)
    assert {one.known for one in said.values()} == {6, 7, 8}
    assert {one.vetted.verdict for name, one in said.items() if name in (disk | job) - confirmed} == {"dismissed"}
    assert {one.vetted.verdict for name, one in said.items() if name not in disk | job | confirmed} == {harmless}
    assert all(one.repaired == (one.known + 2 if name in disk & confirmed else None) for name, one in said.items())


class Stub:
    """Scores a thread by how much it waits, so that what must be an event is known on paper."""

    threshold = 3.0

    def score(self, moment):
        waits = moment.windows()[0][..., 2].mean(1)
        score = np.where(moment.settled, 100 * waits, np.nan).astype(np.float32)
        nothing = np.zeros((len(score), 1), np.float32)
        return Scores(score, score[:, None], ("error",), nothing[:, 0], nothing)


def waiting(world, parts):
    """Half an hour of calm; thread 0 of each node has a job, which goes wrong after 600 s on the last node."""
    traces = []
    for name, part in zip(node_names(world.nodes), parts, strict=True):
        values = np.zeros((2, 1800, 4), np.float32)
        values[..., 0] = 1
        wrong = name != world.creeping_node
        since = 600 if wrong else 0
        values[0, since:] = (1 - part, 0, part, 0)
        span = JobSpan(name, name, (0,), 0.0, 1800.0, "np", "", "bad-io" if wrong else "", 600.0 if wrong else None)
        traces.append(Trace(name, (0, 1), 0, CPU, values, np.ones(values.shape[:2], np.bool_), (span,)))
    return traces


def test_events_are_true_of_jobs_gone_wrong_and_of_the_disk_and_else_false():
    world = World(nodes=2)
    calm, wrong, both = (waiting(world, parts) for parts in ((0.0, 0.0), (0.0, 0.9), (0.9, 0.9)))
    found = watch(world, Stub(), calm, calm)
    assert (found.events, found.jobs_wrong, found.jobs_found) == ((), 1, 0)
    found = watch(world, Stub(), wrong, wrong)
    assert (len(found.true), found.disk, found.jobs_found, found.false_per_node_day) == (1, frozenset(), 1, 0.0)
    found = watch(world, Stub(), wrong, both)  # the first node waits, and would not with a sound disk
    assert (len(found.true), len(found.disk), found.false_per_node_day) == (2, 1, 0.0)
    found = watch(world, Stub(), both, [*both])  # … and here it would all the same
    assert (len(found.true), len(found.disk)) == (1, 0)
    assert found.false_per_node_day == pytest.approx(1 / (2 * 1800 / 86_400))


def test_moments_scored_together_are_scored_as_alone(make_detector):
    seen = [moment for moment, _ in moments(small_day(1)[1], every_s=300)][:14]
    without = [replace(one, jobs=(), job=np.full_like(one.job, -1)) for one in seen[:3]]
    detector = make_detector(0)
    for alone, together in zip([*seen, *without], score_batches(detector, [*seen, *without]), strict=True):
        expected = detector.score(alone)
        for name in ("score", "surprise", "error", "embedding"):
            np.testing.assert_allclose(getattr(together, name), getattr(expected, name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("about", "halts"), [(5, True), (4, True), (3, False)], ids=["today", "a day that was learned", "one that was not"]
)
def test_a_verdict_halts_tonight_if_it_is_about_today_or_about_what_was_learned(about, halts):
    world = World()
    days = [replace(DAYS[0], day=3, outcome="halted"), replace(DAYS[0], day=4, outcome="promoted")]
    start_s = world.day(about).start_s + 100
    said = [Said(5, Vetted("n1", (0,), start_s, start_s + 50, "confirmed"))]
    life = _Life(champion=None, seen=[], memory={}, said=said, days=days)
    assert _pulled(world, life, 5) == halts
    assert not _pulled(world, life, 6)  # that verdict was heard a night ago


def test_a_directory_holds_one_month(tmp_path):
    write_days(tmp_path / "never.json", DAYS)
    rows = run_month(MonthSettings(days=2), tmp_path, ["never"])
    assert [row.strategy for row in rows] == ["never"]  # it was there, and is not lived again
    with pytest.raises(SettingsError, match="other settings"):
        run_month(MonthSettings(days=2, seed=1), tmp_path, ["never"])
    with pytest.raises(SettingsError, match="no strategy often; there are never"):
        run_month(MonthSettings(days=2), tmp_path, ["often"])


@pytest.mark.slow
def test_strategies_live_through_the_same_days_whoever_lives_them(tmp_path):
    settings = MonthSettings(
        days=2, world=World(nodes=2, threads=16, hours=1.0), training=Training(epochs=1, warm_epochs=1), moments=25
    )
    names = ["never", "recalibrated", "warm+replay"]
    run_month(settings, tmp_path / "two", names, workers=2)
    months = {name: read_days(tmp_path / "two" / f"{name}.json") for name in names}
    assert [day.outcome for day in months["never"]] == ["never", "never"]
    assert all(day.outcome in ("promoted", "kept") and day.training_s > 0 for day in months["warm+replay"])
    assert len({month[0].error for month in months.values()}) == 1  # the first day has the same champion
    assert months["recalibrated"][1].error == months["never"][1].error  # the same weights, whatever is usual by now
    run_month(settings, tmp_path / "one", ["warm+replay"], workers=1)
    alone = read_days(tmp_path / "one" / "warm+replay.json")
    assert [replace(day, training_s=0.0) for day in alone] == [
        replace(day, training_s=0.0) for day in months["warm+replay"]
    ]
