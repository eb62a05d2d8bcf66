"""Distributions of start times: by hand, and that they know nothing of the future."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.core.interval_scale import DEFAULT_SCALE, IntervalScale
from clustertwin.core.job_health import JobHealth
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.forecast.live_start import (
    LivePast,
    StartQuestion,
    forecast_queue,
    parse_like,
)
from clustertwin.workload.simulator.forecast.squeue import parse_squeue
from clustertwin.workload.simulator.forecast.start_distribution import FutureSettings, StartDistribution
from clustertwin.workload.simulator.forecast.start_replay import (
    Answer,
    answer_questions,
    rolling_scales,
    score_answers,
)

# 8 processors, all held by anna's job, which has run for 10 of 60 minutes; bo waits for all of them.
QUEUE = "11|anna|RUNNING|8|1|1:00:00|10:00|None\n12|bo|PENDING|8|1|30:00|0:00|Resources\n"


def past_of(user: str, runs_s: list[float], cpus: int = 8) -> Jobs:
    n = len(runs_s)
    return Jobs.build(
        submit_s=np.arange(n) * 7200.0, run_s=runs_s, request_s=np.full(n, 3600.0), cpus=np.full(n, cpus),
        user=np.zeros(n), wait_s=np.zeros(n), names={"user": (user,)},
    )  # fmt: skip


def test_starts_follow_the_run_times_of_the_running_jobs_user():
    runs = past_of("anna", [300.0, 1200.0, 1800.0, 2400.0, 1200.0, 1800.0, 2400.0] * 5)
    past = LivePast(runs, scale=IntervalScale(0.5, 2.0))
    (answer,) = forecast_queue(parse_squeue(QUEUE), past, 8, StartQuestion(within_s=660.0))
    # 300 s are passed already, so the job ends after 600, 1200 or 1800 s from now, each as likely.
    # The half-widths of 600 s, with their floor of a minute, are scaled.
    assert (answer.p10_s, answer.p50_s, answer.p90_s) == (1200.0 - 330.0, 1200.0, 1200.0 + 1320.0)
    assert answer.within_probability == pytest.approx(1 / 3, abs=0.15)
    assert answer.by_limits_s == 3000.0


@pytest.mark.parametrize("sure", [0.0, 0.5, 1.0])
def test_a_running_job_that_hangs_runs_to_its_limit_as_far_as_telemetry_is_sure(sure):
    """Jobs of anna ran for 20 minutes, this one has run for 10 of 60."""
    past, question = LivePast(past_of("anna", [1200.0] * 20)), StartQuestion(within_s=660.0)
    hangs, works = JobHealth("11", True, sure), JobHealth("11", False, 1.0)
    (answer,) = forecast_queue(parse_squeue(QUEUE), past, 8, question, known={"11": hangs})
    assert answer.within_probability == pytest.approx(1 - sure, abs=0.15)
    others = {"11": works, "12": JobHealth("12", True, 1.0)}  # the second one waits
    (answer,) = forecast_queue(parse_squeue(QUEUE), past, 8, question, known=others)
    assert answer.within_probability == 1.0


def test_without_a_past_the_only_future_is_the_limit():
    (answer,) = forecast_queue(parse_squeue(QUEUE), None, 8, StartQuestion(job="12"))
    assert (answer.p10_s, answer.p90_s, answer.futures, answer.basis) == (3000.0, 3000.0, 1, "its limit")


def test_a_job_like_the_one_described_stands_at_the_end_of_the_queue():
    question = StartQuestion(like=parse_like("8 cpus, 0:10:00, user cyd"))
    (answer,) = forecast_queue(parse_squeue(QUEUE), None, 8, question)
    assert (answer.job, answer.user, answer.p50_s) == ("like", "cyd", 3000.0 + 1800.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("4 nodes", "time limit"),
        ("2 h", "a size"),
        ("4 nodes, 2 h, blue", "'blue'"),
        ("4 nodes, 2 h, 2 x gpu", "2 x gpu"),
    ],
)
def test_a_description_that_is_not_understood_is_refused_with_its_part(text, reason):
    with pytest.raises(SettingsError, match=reason):
        parse_like(text)


def test_a_job_that_does_not_wait_is_refused():
    with pytest.raises(SettingsError, match="job 11 does not wait"):
        forecast_queue(parse_squeue(QUEUE), None, 8, StartQuestion(job="11"))


def test_the_likeliest_start_is_where_most_futures_agree():
    starts = StartDistribution(np.array([0.0, 500.0, 510.0, 520.0, 900.0]), 1000.0)
    assert starts.likeliest_s() == 510.0


def random_log(seed: int, n: int = 600, gap_s: float = 330.0) -> Jobs:
    rng = np.random.default_rng(seed)
    request_s = rng.choice([600.0, 3600.0, 7200.0], n)
    return Jobs.build(
        submit_s=np.cumsum(rng.exponential(gap_s, n).round()), run_s=(request_s * rng.uniform(0.05, 1.0, n)).round(),
        request_s=request_s, cpus=rng.integers(1, 9, n), user=rng.integers(0, 3, n),
    )  # fmt: skip


def test_answers_do_not_change_with_what_happens_later():
    jobs, rows = random_log(3), np.array([300, 350])
    settings = FutureSettings(futures=20)
    run_s = jobs.run_s.copy()
    run_s[351:] = 7.0  # later jobs, and only they, run for another time
    other = Jobs.build(jobs.submit_s, run_s, request_s=jobs.request_s, cpus=jobs.cpus, user=jobs.user)
    ours = [a.distribution.samples_s.tolist() for a in answer_questions(jobs, 8, rows, settings)]
    theirs = [a.distribution.samples_s.tolist() for a in answer_questions(other, 8, rows, settings)]
    assert ours == theirs


@pytest.mark.slow
def test_on_a_stationary_log_intervals_hold_and_beat_the_limits():
    jobs, rows = random_log(4, 1200, gap_s=1250.0), np.arange(300, 1200, 10)
    answers = list(answer_questions(jobs, 8, rows, FutureSettings(futures=60)))
    score = score_answers(answers, rolling_scales(answers))
    assert 0.65 <= score.coverage <= 0.95
    assert score.crps_s < score.crps_by_limits_s


def test_a_scale_is_learned_only_from_jobs_that_had_started():
    """Starts are 400 s late from the 30th question on; the job of the 40th still waits at the last question."""
    starts = StartDistribution(np.arange(100.0, 200.0), 0.0)
    answers = [Answer(k, starts, 150.0 + 400.0 * (k >= 30), asked_s=1000.0 * k) for k in range(60)]
    answers[40] = Answer(40, starts, 99_000.0, asked_s=40_000.0)
    scales = rolling_scales(answers)
    assert scales[:20] == [DEFAULT_SCALE] * 20  # 20 starts must be known
    assert scales[30].late < 0.1
    assert scales[-1].late == pytest.approx(4.0, rel=0.1)  # 400 s in half-widths of 40 + 60 s
    assert starts.interval_s(scales[-1])[1] == pytest.approx(550.0, abs=1.0)
