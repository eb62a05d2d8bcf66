"""The generator that learns a site: what it keeps of a log, what it holds, what comes next, and plain logs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.errors import TraceError
from clustertwin.workload.fidelity.measures.marginals import ks_complement
from clustertwin.workload.generators import load, make, save
from clustertwin.workload.generators.site_model import SiteModel
from clustertwin.workload.generators.site_model.job_kinds import KindTable, common_rows
from clustertwin.workload.generators.site_model.population import hold_back
from clustertwin.workload.generators.site_model.queue_caution import USUAL, learn_caution
from clustertwin.workload.generators.site_model.session_fit import phases
from clustertwin.workload.generators.site_model.session_walk import (
    WalkedJobs,
    WorkTargets,
    calm_starts,
    run_times,
    separate,
)
from clustertwin.workload.generators.superposition import concatenate
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_sizes

pytestmark = pytest.mark.slow

WEEK_S = 7 * 86400.0


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def fitted(log):
    return SiteModel().fit(log, rng())


@pytest.fixture(scope="module")
def synthetic(log, fitted):
    return fitted.sample(len(log), rng(1))


def weekly(jobs, values, weeks=8):
    return np.bincount((jobs.submit_s // WEEK_S).astype(int), values, weeks)[:weeks]


def work(jobs):
    return counted_sizes(jobs) * jobs.run_s


@pytest.mark.parametrize("column", ["run_s", "request_s", "nodes", "interval_s"])
def test_columns_are_distributed_as_in_the_log(column, log, synthetic):
    assert ks_complement(getattr(log, column), getattr(synthetic, column)) > 0.93


def test_the_work_of_each_week_follows_the_log(log, synthetic):
    assert weekly(synthetic, work(synthetic)) == pytest.approx(weekly(log, work(log)), rel=0.25)
    assert work(synthetic).sum() == pytest.approx(work(log).sum(), rel=0.05)


def test_users_rest_on_the_weekends_of_the_log(log, synthetic):
    # The log begins on a Monday.
    assert np.mean(synthetic.submit_s // 86400 % 7 >= 5) < 0.02 + np.mean(log.submit_s // 86400 % 7 >= 5)


def test_a_user_keeps_the_sizes_of_that_user(log, synthetic):
    for user in np.unique(log.user):
        assert set(synthetic.nodes[synthetic.user == user]) <= set(log.nodes[log.user == user])


def test_jobs_that_did_not_reach_their_limit_stay_below_it(log, synthetic):
    over = synthetic.run_s >= synthetic.request_s
    assert np.all(synthetic.status[over] == 5)
    assert over.mean() == pytest.approx(np.mean(log.run_s >= log.request_s), abs=0.03)


def test_no_job_runs_for_zero_seconds_where_none_did(log, synthetic):
    assert synthetic.run_s.min() >= log.run_s.min()


def test_hardly_any_job_is_a_copy(log, synthetic):
    real = set(zip(log.user, log.nodes, log.request_s, log.run_s, strict=True))
    made = list(zip(synthetic.user, synthetic.nodes, synthetic.request_s, synthetic.run_s, strict=True))
    assert np.mean([job in real for job in made]) < 0.05


def test_the_saved_model_is_small_and_has_no_table_of_jobs(log, fitted, tmp_path):
    save(fitted, "site-model", tmp_path / "model")
    assert sum(path.stat().st_size for path in (tmp_path / "model").iterdir()) < 100_000
    document = json.loads((tmp_path / "model" / "generator.json").read_text())
    assert document["generator"] == "site-model"
    with np.load(tmp_path / "model" / "arrays.npz") as arrays:
        submit = {name for name in arrays.files if np.isin(log.submit_s, arrays[name]).mean() > 0.1}
    assert not submit
    again = load(tmp_path / "model").future(2, rng(3))
    assert np.array_equal(again.submit_s, fitted.future(2, rng(3)).submit_s)


def test_a_long_stream_passes_through_the_weeks_again(log, fitted):
    blocks = list(fitted.stream(5 * len(log), rng(2)))
    submit_s = np.concatenate([block.submit_s for block in blocks])
    assert np.all(np.diff(submit_s) >= 0)
    assert submit_s[-1] == pytest.approx(5 * 8 * WEEK_S, rel=0.05)
    assert max(len(block) for block in blocks) < 12_000


def test_a_short_log_begins_somewhere_in_the_real_one(log, fitted):
    epochs = {fitted.sample(50, rng(seed)).epoch_s for seed in range(10)}
    assert len(epochs) > 1
    assert min(epochs) >= log.epoch_s


def test_coming_weeks_follow_the_log_and_hold_new_users(log, fitted):
    jobs = fitted.future(6, rng(4))
    assert jobs.submit_s[0] > log.submit_s[-1]
    assert jobs.submit_s[-1] < log.submit_s[-1] + 1 + 6 * WEEK_S
    assert np.all(np.diff(jobs.submit_s) >= 0)
    assert np.array_equal(jobs.id, np.arange(1, len(jobs) + 1))
    assert np.all(counted_sizes(jobs) <= 64)


def test_new_users_arrive_where_users_came_during_the_log(make_log):
    old = make_log(days=56, users=3, seed=1)
    new = make_log(days=28, users=9, seed=2)
    new = replace(new, submit_s=new.submit_s + 28 * 86400, user=new.user + 100)
    columns = {name: np.concatenate([values, new.columns()[name]]) for name, values in old.columns().items()}
    log = replace(old, **columns)
    log = log.take(np.argsort(log.submit_s, kind="stable"))
    jobs = SiteModel().fit(log, rng()).future(8, rng(5))
    assert np.setdiff1d(jobs.user, log.user).size > 0


def test_names_of_new_users_continue_the_names_of_the_log(log):
    named = replace(log, names={"user": tuple(f"person{i}" for i in range(9))})
    model = SiteModel().fit(named, rng())
    jobs = model.future(3, rng(1))
    assert int(jobs.user.max()) < len(jobs.names["user"])


def test_two_futures_differ_more_than_the_load_of_neighbouring_draws(fitted):
    levels = fitted.levels()
    loads = [levels.draw(4, rng(seed))[1].mean() for seed in range(20)]
    assert np.std(loads) / np.mean(loads) > 0.03


def test_a_load_above_the_machine_is_held_back():
    held = hold_back(np.full(20, 1.5), np.full(10, 0.6))
    assert held[0] < 1.5
    assert held[-1] == pytest.approx(0.9)
    calm = np.full(5, 0.8)
    assert np.array_equal(hold_back(calm, calm), calm)


def test_rare_shapes_become_common_ones(log):
    odd = replace(log, nodes=log.nodes.copy())
    odd.nodes[5] = 63
    kinds, kind = KindTable.of(odd)
    assert 63 not in kinds.columns["nodes"]
    assert kinds.columns["nodes"][kind[5]] == 32
    assert common_rows(np.array([[1], [2]]), np.array([0.0, 1.0])).tolist() == [1, 1]


def test_a_log_of_few_jobs_of_many_sizes_keeps_small_and_large_ones():
    sizes = np.array([2, 8, 8, 8, 16, 24, 64, 64, 120, 128])
    log = Jobs.build(3600.0 * np.arange(10), np.full(10, 60.0), cpus=sizes, user=np.zeros(10, dtype=int))
    kinds, kind = KindTable.of(log)
    assert np.all(np.abs(np.log2(kinds.columns["size"][kind] / sizes)) <= 3)
    assert kinds.columns["size"].max() == 120
    assert np.bincount(kind).min() >= 3


def test_a_log_without_users_is_not_said_to_have_one(log):
    fitted = SiteModel().fit(replace(log, user=np.full(len(log), -1)), np.random.default_rng(0))
    assert "how users come and go: the log names no users" in fitted.not_learnt()
    assert not any("one user" in reason for reason in fitted.not_learnt())


def test_a_busy_user_has_several_phases():
    assert np.bincount(phases(np.repeat([1, 2], [1000, 10]))).tolist() == [200] * 5 + [10]


def test_sessions_of_one_user_do_not_overlap():
    start_s, user = np.array([0.0, 10.0, 5.0]), np.array([1, 1, 2])
    moved = separate(np.array([0, 1, 2]), user, start_s, np.array([100.0, 7.0, 1.0]), np.array([0.0, 5.0, 5.0]))
    assert moved.tolist() == [0.0, 105.0, 5.0]


def test_a_session_starts_where_the_machine_is_not_full():
    # The first session needs the machine of 4 and half as much again in hour 0; the second may start in hour 0 or 5.
    jobs = WalkedJobs(np.array([1, 1]), np.zeros(2), np.array([6, 2]), np.array([3600.0, 3600.0]))
    starts_s = np.array([[0.0, 0.0], [600.0, 5 * 3600.0]])
    assert calm_starts(np.array([0, 1]), starts_s, jobs, 4.0).tolist() == [0.0, 5 * 3600.0]
    # On a machine that holds both, the first offer is taken.
    assert calm_starts(np.array([0, 1]), starts_s, jobs, 8.0).tolist() == [0.0, 600.0]


def test_run_times_are_shifted_until_their_work_meets_the_target(fitted):
    states = np.flatnonzero(fitted.kinds.columns["over"][fitted.tables.state_kind] == 0)[:50]
    kind = fitted.tables.state_kind[states]
    size, bounds, part = fitted.kinds.columns["size"][kind], fitted.kinds.bounds(kind), np.zeros(50, dtype=np.int64)

    def total(target):
        aim = WorkTargets(part, np.array([target]), 2.0)
        return float((size * run_times(fitted.tables, states, np.zeros(50), bounds, size, aim)).sum())

    assert total(1.2 * total(0.0)) == pytest.approx(1.2 * total(0.0), rel=0.01)
    assert total(0.8 * total(0.0)) == pytest.approx(0.8 * total(0.0), rel=0.01)


def plain(submit_s, run_s, **columns):
    return Jobs.build(submit_s, run_s, cpus=np.full(len(submit_s), 4), **columns)


TEN = plain(60.0 * np.arange(10), np.arange(100.0, 110.0), user=np.arange(10) % 3)
EQUAL = plain(3600.0 * np.arange(300), np.full(300, 100.0), request_s=np.full(300, 200.0), user=np.ones(300))
AT_ONCE = plain(np.zeros(50), np.full(50, 100.0), user=np.ones(50))
NO_USERS = plain(9000.0 * np.arange(400), 10.0 + np.arange(400) % 97)


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        (TEN, "how the load drifts"),
        (EQUAL, "all have one kind"),
        (AT_ONCE, "how users come and go"),
        (NO_USERS, "limits: the log has none"),
        (NO_USERS, "sessions: no user submits"),
    ],
)
def test_a_plain_log_still_works_and_says_what_was_not_learnt(jobs, reason):
    model = SiteModel().fit(jobs, rng())
    assert any(reason in text for text in model.not_learnt())
    assert len(model.sample(len(jobs) + 5, rng(1))) == len(jobs) + 5
    assert len(model.future(2, rng(2))) >= 1


def test_a_week_only_still_works_and_says_so(make_log):
    model = SiteModel().fit(make_log(days=6), rng())
    assert any("too few whole weeks (1)" in text for text in model.not_learnt())
    assert len(model.future(2, rng(2))) >= 1


def test_a_full_log_has_fewer_gaps(make_log):
    assert SiteModel().fit(make_log(days=84), rng()).not_learnt() == (
        "the seasons of the year: the log covers less than two years",
    )


def test_nine_jobs_are_refused():
    with pytest.raises(TraceError, match="9 jobs are too few"):
        SiteModel().fit(TEN.take(slice(0, 9)), rng())


def plain_log(run_s, submit_s=None, **columns):
    n = len(run_s)
    submit_s = np.sort(rng(3).uniform(0, 4 * WEEK_S, n)).round() if submit_s is None else submit_s
    return Jobs.build(submit_s, run_s, cpus=np.ones(n, dtype=int), user=rng(4).integers(1, 9, n), **columns)


def test_no_job_runs_longer_than_the_longest_real_job():
    run_s = rng().lognormal(5, 1.5, 1000).round() + 1
    log = plain_log(run_s, request_s=run_s * rng(1).lognormal(3, 2, 1000).clip(2))
    jobs = SiteModel().fit(log, rng()).sample(1000, rng(1))
    assert jobs.run_s.max() <= 1.1 * run_s.max()


def test_zero_second_jobs_are_as_frequent_as_in_the_log_and_others_are_not_shorter():
    run_s = rng().integers(40, 4000, 1000).astype(float)
    run_s[rng(1).random(1000) < 0.2] = 0.0
    jobs = SiteModel().fit(plain_log(run_s), rng()).sample(1000, rng(1))
    assert np.mean(jobs.run_s == 0) == pytest.approx(np.mean(run_s == 0), abs=0.05)
    assert jobs.run_s[jobs.run_s > 0].min() >= 40


@pytest.mark.parametrize("generator", ["site-model", "crossover"])
def test_a_log_of_whole_minutes_gives_whole_minutes(generator):
    submit_s = 60 * np.sort(rng().integers(0, 4 * 10080, 1000)) + 17.0
    log = plain_log(rng(1).integers(40, 4000, 1000).astype(float), submit_s)
    jobs = make(generator).fit(log, rng()).sample(1000, rng(1))
    assert not np.any((jobs.submit_s - submit_s[0]) % 60)


def test_months_with_a_job_a_week_before_the_site_opens_are_not_learnt_as_its_level(log):
    early = log.take(np.arange(20))
    early = replace(early, submit_s=np.arange(20) * WEEK_S)
    later = replace(log, submit_s=log.submit_s + 20 * WEEK_S)
    fitted = SiteModel(caution=0).fit(concatenate([early, later]), rng())
    assert fitted.calendar.settled().start >= 20


def test_an_array_of_thousands_of_jobs_arrives_at_once(log):
    columns = {"user": 1, "nodes": 1, "cpus": 16, "request_s": 1800.0, "status": 1}
    arrays = [
        Jobs.build(np.full(2000, 86400.0 * day), 60.0 + np.arange(2000) % 30,
                   **{name: np.full(2000, value) for name, value in columns.items()})
        for day in (10, 24, 40)
    ]  # fmt: skip
    busy = replace(concatenate([log, *arrays]), epoch_s=log.epoch_s, machine=log.machine)
    busy = busy.take(np.argsort(busy.submit_s, kind="stable"))
    drawn = SiteModel(caution=0).fit(busy, rng()).sample(len(busy), rng(1))
    assert np.unique(drawn.submit_s, return_counts=True)[1].max() > 1000


def test_small_logs_are_tried_more_often_than_large_ones():
    def jobs(n):
        return Jobs.build(np.arange(n) * 10.0, np.full(n, 12.0), cpus=np.ones(n, int))

    trials = {n: [] for n in (1_000, 40_000)}
    for n, seeds in trials.items():
        learn_caution(jobs(n), lambda caution, count, rng, seeds=seeds: seeds.append(caution) or jobs(count))
    assert trials[1_000].count(0) >= 10 > trials[40_000].count(0) >= 1
    assert 40_000 * len(trials[40_000]) <= 400_000


def test_the_caution_with_the_closest_waits_is_learnt():
    """Jobs of the whole machine. Those of caution 3 are spread, so that only they wait as little as the log's."""
    apart_s = np.array([100.0, 100.0, 200.0, 450.0])

    def jobs(interval_s, n=50):
        return Jobs.build(interval_s * np.arange(n), np.full(n, 500.0), cpus=np.full(n, 4))

    assert learn_caution(jobs(440.0), lambda caution, n, rng: jobs(apart_s[caution], n)) == 3
    assert learn_caution(jobs(210.0), lambda caution, n, rng: jobs(apart_s[caution], n)) == 2
    assert learn_caution(jobs(600.0), lambda caution, n, rng: jobs(apart_s[caution], n)) == USUAL  # nobody waits


def test_sessions_that_choose_again_leave_less_work_beyond_the_machine():
    """Ten sessions of four hours, where each other session is in the way; each has eight starts in two days."""
    n, starts_s = 10, 3600.0 * rng().integers(0, 44, (10, 8))
    jobs = WalkedJobs(np.ones(n, dtype=int), np.zeros(n), np.ones(n, dtype=int), np.full(n, 4 * 3600.0))

    def beyond(passes):
        busy = np.zeros(48)
        for start_s in calm_starts(np.arange(n), starts_s.astype(float), jobs, 0.0, passes, True):
            busy[int(start_s // 3600) : int(start_s // 3600) + 4] += 1
        return np.maximum(busy - 1, 0).sum()

    assert beyond(3) < beyond(1)
