"""The simulated month: its scenario, its reviewers, its events, its nights and its table."""

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
from clustertwin.telemetry.learning.night.challengers import ChallengerTraining
from clustertwin.telemetry.learning.night.verdicts import VettedSpan
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.simulation.copula_process import draw_ticks
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import node_names
from clustertwin.telemetry.studies.month.daily_faults import FAULTS
from clustertwin.telemetry.studies.month.month_report import (
    DayResult,
    draw_month,
    read_days,
    summarise,
    write_days,
)
from clustertwin.telemetry.studies.month.month_settings import DEFAULT_STRATEGY, MonthSettings
from clustertwin.telemetry.studies.month.month_study import run_month
from clustertwin.telemetry.studies.month.simulated_month import (
    MonthScenario,
    simulate_day,
    unseen_month,
    with_failing_disk,
)
from clustertwin.telemetry.studies.month.simulated_night import StrategyState, is_halt_cause
from clustertwin.telemetry.studies.month.simulated_vetting import DelayedVerdict, Reviewers, vet_day
from clustertwin.telemetry.studies.month.simulated_watch import WatchedDay, watch_day
from clustertwin.telemetry.studies.month.unseen_programs import FOREIGN, UNSEEN, with_unseen_programs

SMALL_SCENARIO = MonthScenario(nodes=2, threads=8, hours=0.5)
DAYS = [
    DayResult(1, True, 0.2, 4.0, 0, 0, 0.01, 0, 1.0, 0.9, 0.1, "promoted", 1800.0),
    DayResult(2, False, 0.4, 2.0, 4, 3, 0.02, 2, 0.7, 0.8, 0.3, "halted", 1800.0),
]


def test_a_failing_disk_lengthens_only_the_waits_of_one_node():
    healthy = simulate_day(SMALL_SCENARIO, 3, read_signatures(), 0)
    for before, after in zip(healthy, with_failing_disk(SMALL_SCENARIO, healthy, 1.0), strict=True):
        np.testing.assert_allclose(after.values.sum(-1), 1, atol=1e-5)
        factor = 2 if after.node == SMALL_SCENARIO.failing_node else 1
        odds = [np.array(v[..., 2] / np.maximum(1 - v[..., 2], 1e-3)) for v in (before.values, after.values)]
        mild = before.values[..., 2] < 0.9
        np.testing.assert_allclose(odds[1][mild], factor * odds[0][mild], atol=1e-4, rtol=1e-3)


def test_new_hardware_and_new_jobs_come_on_their_days():
    assert [day for day in range(31) if MonthScenario().is_change(day)] == [6, 10, 15, 20]
    assert [MonthScenario().last_change(day) for day in (5, 6, 9, 14, 30)] == [-100, 6, 6, 10, 20]
    types = [
        {span.job_type for t in simulate_day(SMALL_SCENARIO, day, read_signatures(), 0) for span in t.spans}
        for day in (0, 11)
    ]
    assert types[0] <= {"np", "good-io", "mpi-2"}
    assert types[1] <= {"np", "good-io", "mpi-8", "render"}
    scenarios = replace(SMALL_SCENARIO, new_hardware=99), SMALL_SCENARIO
    old, new = (simulate_day(scenario, 17, read_signatures(), 0)[1].values.mean((0, 1)) for scenario in scenarios)
    assert new[1] - old[1] == pytest.approx(0.1 * old[0], rel=1e-3)


def test_render_is_lighter_than_np_and_only_disk_jobs_wait_for_the_disk():
    def mean_ratios(job_type):
        scenario = MonthScenario(nodes=1, threads=8, hours=0.5, mix=((0, (job_type,)),))
        (trace,) = simulate_day(scenario, 1, read_signatures(), 0)
        spans = [span for span in trace.spans if span.job_type == job_type]
        blocks = [
            trace.values[list(s.cpus), int(s.start_s) - trace.start_s : int(s.end_s) - trace.start_s] for s in spans
        ]
        return np.concatenate([block.reshape(-1, 4) for block in blocks]).mean(0)

    np_, render, good_io = mean_ratios("np"), mean_ratios("render"), mean_ratios("good-io")
    assert render[0] == pytest.approx(0.75 * np_[0], rel=0.03)
    assert np_[2] < 0.001
    assert 0.02 < good_io[2] < 0.08


def test_the_days_of_the_first_champion_have_no_anomaly():
    days = [simulate_day(SMALL_SCENARIO, day, read_signatures(), 0) for day in range(-4, 1)]
    assert not [span for traces in days for trace in traces for span in trace.spans if span.anomaly]


def test_on_the_holiday_many_jobs_are_bad_io():
    traces = simulate_day(replace(SMALL_SCENARIO, nodes=4), 26, read_signatures(), 0)
    jobs = {span.job: span.anomaly for trace in traces for span in trace.spans}
    assert set(jobs.values()) == {"", "bad-io"}
    assert 0.1 < np.mean([anomaly != "" for anomaly in jobs.values()]) < 0.5


def test_the_summary_of_two_days():
    summary = summarise("x", DAYS)
    assert (summary.error, summary.false_events, summary.found) == (pytest.approx(0.3), 3.0, 0.75)
    assert summary.false_usual == 2.0  # the first day brought a change
    assert (summary.disk_days, summary.disk_sight) == (1.0, 0.7)
    assert (summary.golden, summary.golden_worst) == (pytest.approx(0.85), 0.8)
    assert summary.forgetting == pytest.approx(3.0)
    assert (summary.promoted, summary.halted, summary.training_h) == (1, 1, 1.0)


def test_a_disk_failure_without_an_event_has_no_delay():
    assert np.isnan(summarise("x", DAYS[:1]).disk_days)


@pytest.mark.slow
def test_days_are_written_read_and_drawn(tmp_path):
    write_days(tmp_path / "x.json", DAYS)
    again = read_days(tmp_path / "x.json")
    assert again == DAYS
    draw_month({"x": again}, tmp_path / "month.png")
    assert (tmp_path / "month.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("last_change", "harmless"), [(-100, "dismissed"), (1, "dismissed"), (2, "new-normal")])
def test_reviewers_are_late_and_mistaken_as_often_as_set_and_get_the_disk_replaced(last_change, harmless):
    events = [Event(f"{n}", (("n1", (0,)),), (), "", 500, 600, None, 9.0, "density", "") for n in range(600)]
    disk, job = ({f"{n}" for n in numbers} for numbers in (range(200), range(200, 400)))
    watched = WatchedDay(tuple(events), frozenset(disk | job), frozenset(disk), 0, 0, 1.0, 0.1)
    verdicts = vet_day(Reviewers(), 6, watched, last_change, np.random.default_rng(0))
    by_event = dict(zip(sorted(event.id for event in events), verdicts, strict=True))
    confirmed = {name for name, delayed in by_event.items() if delayed.span.verdict == "confirmed"}
    assert len(confirmed & (disk | job)) == pytest.approx(360, abs=20)
    assert len(confirmed - disk - job) == pytest.approx(2, abs=4)
    assert {delayed.known for delayed in verdicts} == {6, 7, 8}
    missed, false = (disk | job) - confirmed, by_event.keys() - disk - job - confirmed
    assert {by_event[name].span.verdict for name in missed} == {"dismissed"}
    assert {by_event[name].span.verdict for name in false} == {harmless}
    for name, delayed in by_event.items():
        assert delayed.repaired == (delayed.known + 2 if name in disk & confirmed else None)


class StubDetector:
    """Scores a thread by its iowait, so that the expected events are known on paper."""

    threshold = 3.0

    def score(self, moment):
        waits = moment.windows()[0][..., 2].mean(1)
        score = np.where(moment.settled, 100 * waits, np.nan).astype(np.float32)
        nothing = np.zeros((len(score), 1), np.float32)
        return Scores(score, score[:, None], ("error",), nothing[:, 0], nothing)


def waiting(scenario, waits):
    """Half an hour of normal work; thread 0 of each node has a job, which goes wrong after 600 s on the last node."""
    traces = []
    for name, wait in zip(node_names(scenario.nodes), waits, strict=True):
        values = np.zeros((2, 1800, 4), np.float32)
        values[..., 0] = 1
        wrong = name != scenario.failing_node
        since = 600 if wrong else 0
        values[0, since:] = (1 - wait, 0, wait, 0)
        span = JobSpan(name, name, (0,), 0.0, 1800.0, "np", "", "bad-io" if wrong else "", 600.0 if wrong else None)
        traces.append(Trace(name, (0, 1), 0, CPU, values, np.ones(values.shape[:2], np.bool_), (span,)))
    return traces


@pytest.mark.medium
def test_events_about_wrong_jobs_and_about_the_disk_are_true_and_others_are_false():
    scenario, detector = MonthScenario(nodes=2), StubDetector()
    calm, wrong, both = (waiting(scenario, waits) for waits in ((0.0, 0.0), (0.0, 0.9), (0.9, 0.9)))
    day = watch_day(scenario, detector, calm, calm)
    assert (day.events, day.jobs_wrong, day.jobs_found) == ((), 1, 0)
    day = watch_day(scenario, detector, wrong, wrong)
    assert (len(day.true), day.disk, day.jobs_found, day.false_per_node_day) == (1, frozenset(), 1, 0.0)
    day = watch_day(scenario, detector, wrong, both)  # the first node waits, and would not with a healthy disk
    assert (len(day.true), len(day.disk), day.false_per_node_day) == (2, 1, 0.0)
    day = watch_day(scenario, detector, both, [*both])  # the first node would wait with a healthy disk as well
    assert (len(day.true), len(day.disk)) == (1, 0)
    assert day.false_per_node_day == pytest.approx(1 / (2 * 1800 / 86_400))


def test_moments_scored_together_are_scored_as_alone(make_detector):
    with_jobs = [moment for moment, _ in moments(small_day(1)[1], every_s=300)][:14]
    without_jobs = [replace(moment, jobs=(), job=np.full_like(moment.job, -1)) for moment in with_jobs[:3]]
    detector, batch = make_detector(0), [*with_jobs, *without_jobs]
    for alone, together in zip(batch, score_batches(detector, batch), strict=True):
        expected = detector.score(alone)
        for name in ("score", "surprise", "error", "embedding"):
            np.testing.assert_allclose(getattr(together, name), getattr(expected, name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("about", "halts"), [(5, True), (4, True), (3, False)], ids=["today", "a day that was learned", "one that was not"]
)
def test_a_verdict_halts_the_night_if_it_is_about_today_or_about_a_learned_day(about, halts):
    scenario = MonthScenario()
    days = [replace(DAYS[0], day=3, outcome="halted"), replace(DAYS[0], day=4, outcome="promoted")]
    start_s = scenario.day(about).start_s + 100
    verdicts = [DelayedVerdict(5, VettedSpan("n1", (0,), start_s, start_s + 50, "confirmed"))]
    state = StrategyState(champion=None, memory={}, verdicts=verdicts, days=days)
    assert is_halt_cause(scenario, state, 5) == halts
    assert not is_halt_cause(scenario, state, 6)  # the verdict was already known a night ago


@pytest.mark.medium
def test_a_directory_holds_one_month(tmp_path):
    write_days(tmp_path / "never.json", DAYS)
    rows = run_month(MonthSettings(days=2), tmp_path, ["never"])
    assert [row.strategy for row in rows] == ["never"]  # its file exists, so it is not run again
    with pytest.raises(SettingsError, match="other settings"):
        run_month(MonthSettings(days=2, seed=1), tmp_path, ["never"])
    with pytest.raises(SettingsError, match="no strategy often; choose from never"):
        run_month(MonthSettings(days=2), tmp_path, ["often"])


@pytest.mark.slow
def test_every_strategy_gets_the_same_days_with_any_number_of_workers(tmp_path):
    settings = MonthSettings(
        days=2,
        world=MonthScenario(nodes=2, threads=8, hours=0.75),
        training=ChallengerTraining(epochs=1, warm_epochs=1),
        moments=25,
    )
    names = ["never", "recalibrated", "warm+replay"]
    run_month(settings, tmp_path / "two", names, workers=2)
    months = {name: read_days(tmp_path / "two" / f"{name}.json") for name in names}
    assert [day.outcome for day in months["never"]] == ["never", "never"]
    assert all(day.outcome in ("promoted", "kept") and day.training_s > 0 for day in months["warm+replay"])
    assert len({month[0].error for month in months.values()}) == 1  # the first day has the same champion
    assert months["recalibrated"][1].error == months["never"][1].error  # a recalibration keeps the weights
    run_month(settings, tmp_path / "one", ["warm+replay"], workers=1)
    alone = read_days(tmp_path / "one" / "warm+replay.json")
    assert [replace(day, training_s=0.0) for day in alone] == [
        replace(day, training_s=0.0) for day in months["warm+replay"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("foreign", [False, True])
def test_a_month_of_unseen_programs_has_their_share_of_jobs_and_faults_in_all(foreign):
    scenario = replace(unseen_month(0.35, foreign), nodes=4, threads=16, hours=2.0)
    days = [simulate_day(scenario, day, read_signatures(), 0) for day in (1, 2, 3)]
    jobs = {(number, s.job): s for number, traces in enumerate(days) for trace in traces for s in trace.spans}
    new = np.mean([span.job_type in UNSEEN for span in jobs.values()])
    assert 0.2 < new < 0.5
    assert {span.job_type for span in jobs.values()} <= set(scenario.job_types)
    wrong = [span for span in jobs.values() if span.anomaly]
    assert {span.anomaly for span in wrong} == set(FAULTS)
    assert any(span.job_type in UNSEEN for span in wrong)
    assert any(span.job_type not in UNSEEN for span in wrong)
    assert not any(span.anomaly == "hung-job" and span.job_type == "notebook" for span in wrong)
    for traces in days:
        for trace in traces:
            np.testing.assert_allclose(trace.values.sum(-1), 1, atol=1e-4)
            assert trace.values.min() >= 0


def test_unseen_programs_have_the_levels_of_their_table():
    signatures = with_unseen_programs(read_signatures(), foreign=True)
    for name, program in (UNSEEN | FOREIGN).items():
        ticks = draw_ticks(signatures.kinds[name, ""], 8, 2000, np.random.default_rng(0)) / 100
        assert np.median(ticks[..., 3]) == pytest.approx(program.other, abs=0.06), name


@pytest.mark.slow
def test_on_a_foreign_site_the_first_nights_learn_it_without_a_person(tmp_path):
    """A short slice of `twin learn simulate --foreign`: 2 nodes of 8 threads, 1.5 h a day."""
    world = replace(unseen_month(0.0, foreign=True), nodes=2, threads=8, hours=1.5)
    settings = MonthSettings(
        days=3, world=world, vetted=False, training=ChallengerTraining(epochs=2, warm_epochs=1), moments=40
    )
    run_month(settings, tmp_path, [DEFAULT_STRATEGY])
    days = read_days(tmp_path / f"{DEFAULT_STRATEGY}.json")
    assert days[0].shadow  # nobody is notified before the site is known
    assert days[0].outcome == "promoted"
    assert max(day.false_events for day in days) <= 1.0  # what is new here raises nothing
    assert days[-1].golden > 0.3
