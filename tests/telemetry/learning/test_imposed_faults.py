"""Imposed faults: what each does to the seconds of a job, and what a site's golden set is made of."""

from dataclasses import replace

import numpy as np
import pytest
from tests.telemetry.learning.conftest import small_day

from clustertwin.core.channels import CPU, NODE, Schema
from clustertwin.core.traces import NodeChannels
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.learning.duel.imposed_faults import FAULTS, LEAK, impose
from clustertwin.telemetry.learning.duel.site_golden_set import evaluate_on_site, site_golden_set
from clustertwin.telemetry.moments.moment import Moment, moments

USER, SYSTEM, IOWAIT, OTHER = range(4)
SECONDS = 300


def job_of(threads, ratios=(0.8, 0.1, 0.0, 0.1), seed=0, nodes=("n1",)):
    """A moment with one job: kernel ticks around the same mean ratios in every second."""
    rng = np.random.default_rng(seed)
    values = (rng.multinomial(100, ratios, (threads, SECONDS)) / 100).astype(np.float32)
    zero = np.zeros(threads, np.int32)
    return Moment(
        1000, CPU, values, np.ones((threads, SECONDS), np.bool_), nodes, zero, np.arange(threads, dtype=np.int32),
        ("7",), zero, zero + SECONDS,
    )  # fmt: skip


def imposed(kind, job, seed=1):
    return impose(kind, job, np.random.default_rng(seed)).values


@pytest.mark.parametrize("kind", FAULTS)
def test_the_ratios_of_a_faulty_thread_sum_to_one(kind):
    values = imposed(kind, job_of(4))
    np.testing.assert_allclose(values.sum(-1), 1, atol=1e-5)
    assert values.min() >= 0


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_depends_only_on_its_seed_and_leaves_masked_seconds_alone(kind):
    job = job_of(4)
    job.valid[:, 10:20] = False
    job.values[~job.valid] = 0
    once, again, other = imposed(kind, job), imposed(kind, job), imposed(kind, job, seed=2)
    assert (once == again).all()
    assert not (once == other).all()
    assert not once[:, 10:20].any()


def test_an_idle_rank_makes_the_others_wait():
    polling, blocking = job_of(4, (0.97, 0.02, 0.0, 0.01)), job_of(4, (0.6, 0.1, 0.0, 0.3))
    for job, waits in ((polling, (0.4, 0.6)), (blocking, (0.004, 0.003))):
        mean = imposed("one rank idle", job).mean(1)  # (thread, channel)
        victim = int(mean[:, OTHER].argmax())
        assert mean[victim, OTHER] > 0.98
        np.testing.assert_allclose(np.delete(mean, victim, 0)[:, :2], [waits] * 3, atol=0.02)


@pytest.mark.parametrize(("kind", "factor"), [("straggler x1.5", 1.5), ("straggler x2", 2.0)])
def test_a_straggler_stretches_the_waits_of_its_peers(kind, factor):
    job = job_of(4, (0.7, 0.1, 0.0, 0.2))  # its ranks block while they wait
    mean = imposed(kind, job).mean(1)
    victim = int(mean[:, USER].argmax())
    peers = np.delete(mean, victim, 0)
    np.testing.assert_allclose(peers[:, USER] + peers[:, SYSTEM], 0.8 / factor, atol=0.05)
    assert mean[victim, OTHER] < 0.2  # the slow rank itself waits less than before


def test_two_misbound_ranks_share_one_thread_and_slow_the_job():
    mean = imposed("misbound", job_of(4, (0.6, 0.1, 0.0, 0.3))).mean(1)
    busy = np.sort(mean[:, USER] + mean[:, SYSTEM])
    assert busy[0] < 0.02  # the thread that is left
    assert busy[-1] > 0.97  # the shared one: 1.4 threads of work on one
    np.testing.assert_allclose(busy[1:3], 0.7 / 1.4, atol=0.03)  # the others wait for the two


def test_raised_waits_and_throttling_and_system_time_change_their_channel():
    healthy = job_of(4, (0.9, 0.05, 0.0, 0.05))
    mean = {kind: imposed(kind, healthy).mean((0, 1)) for kind in ("iowait raised", "throttled", "system raised")}
    assert 0.25 < mean["iowait raised"][IOWAIT] < 0.75
    assert 0.3 <= mean["throttled"][OTHER] <= 0.6
    assert mean["system raised"][SYSTEM] > 0.05 + 0.9 * 0.24
    assert mean["system raised"][OTHER] == pytest.approx(healthy.values.mean((0, 1))[OTHER], abs=1e-5)


def test_a_leak_fills_the_memory_of_the_jobs_node_only():
    memory = Schema(NODE.channels[:1])
    job = replace(job_of(2, nodes=("n1", "n2")), node_channels=NodeChannels(memory, np.full((2, SECONDS, 1), 0.5)))
    leaking = impose(LEAK, job, np.random.default_rng(0)).node_channels.values[..., 0]
    assert (leaking[1] == 0.5).all()
    assert leaking[0, 0] == pytest.approx(0.5)
    assert 0.6 <= leaking[0, -1] <= 0.8
    assert (np.diff(leaking[0]) > 0).all()


@pytest.mark.slow
def test_the_set_of_a_site_has_every_kind_and_the_same_hash_for_the_same_days():
    day = [moment for moment, _ in moments(small_day(2)[1], every_s=600)]
    golden = site_golden_set(day)
    assert set(golden.kinds) == set(FAULTS)
    assert golden.enough
    assert golden.sha256 == site_golden_set(day).sha256 != site_golden_set(day[:-1]).sha256
    assert all((job.job >= 0).all() for job in golden.healthy)  # idle threads without a job are no case


def test_jobs_that_already_lose_their_time_are_not_healthy():
    assert site_golden_set([job_of(4, (0.1, 0.1, 0.7, 0.1))]).cases == ()
    assert site_golden_set([job_of(4, (0.005, 0.005, 0.0, 0.99))]).cases == ()


class StubDetector:
    """Alarms on iowait and, if it floods, on everything."""

    threshold = 3.0

    def __init__(self, floods=False):
        self.floods = floods

    def score(self, moment):
        waits = moment.values[..., IOWAIT].mean(1)
        score = np.where(waits > 0.2, 9.0, 9.0 if self.floods else 0.0).astype(np.float32)
        nothing = np.zeros((len(score), 1), np.float32)
        return Scores(score, score[:, None], ("error",), nothing[:, 0], nothing)


def test_a_fault_is_seen_only_if_the_healthy_job_does_not_alarm():
    golden = site_golden_set([job_of(4, seed=n) for n in range(3)])
    seeing, flooding = (evaluate_on_site(StubDetector(floods), golden) for floods in (False, True))
    assert seeing.recall["iowait raised"] == 1.0
    assert seeing.recall["throttled"] == 0.0
    assert seeing.false_alarms == 0.0
    assert set(flooding.recall.values()) == {0.0}
    assert flooding.false_alarms == 1.0
