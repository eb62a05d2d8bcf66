"""Start times of a live queue, with known run times and over drawn futures."""

import os

import numpy as np
import pytest

from clustertwin.core.errors import InputError, SettingsError, SourceError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.forecast.squeue import parse_squeue, read_size, read_squeue
from clustertwin.workload.simulator.forecast.start_times import Scenario, draw_futures, predict_start_times
from clustertwin.workload.slurm.live.site_queue import parse_site_queue

# 8 processors: two jobs run, three wait, one is held by its user.
QUEUE = """\
11|anna|RUNNING|4|1|1:00:00|30:00|None
12|bo|RUNNING|2|1|2:00:00|1:50:00|None
13|anna|PENDING|8|2|1:00:00|0:00|Resources
14|bo|PENDING|2|1|10:00|0:00|Priority
15|bo|PENDING|2|1|1-00:00:00|0:00|Priority
16|cyd|PENDING|1|1|10:00|0:00|JobHeldUser
"""
MINUTE = 60.0


def test_squeue_gives_the_running_and_the_waiting_jobs():
    queue = parse_squeue(QUEUE)
    assert (queue.running, queue.held) == (2, 1)
    assert queue.jobs.submit_s.tolist() == [-1, -1, 0, 0, 0]
    assert queue.jobs.request_s[2:].tolist() == [60 * MINUTE, 10 * MINUTE, 24 * 60 * MINUTE]
    assert queue.jobs.names["user"] == ("anna", "bo")


def test_a_reason_with_a_bar_in_it_leaves_the_queue_readable():
    queue = parse_squeue("13|anna|PENDING|8|2|1:00:00|0:00|burst_buffer: a|b failed\n")
    assert queue.names == ("13",)


def test_a_job_without_a_limit_of_its_own_leaves_the_queue_readable():
    queue = parse_squeue("13|anna|PENDING|8|2|NOT_SET|0:00|Priority\n")
    assert queue.jobs.request_s.tolist() == [365 * 86400]


def test_start_times_have_slurms_job_ids():
    queue = parse_squeue(QUEUE)
    start_times = predict_start_times(queue, Scenario("now", "fcfs", "none", 8), [queue.jobs])
    assert start_times.jobs == ("13", "14", "15")


def test_without_waiting_jobs_there_are_no_start_times():
    for text in ("", QUEUE.splitlines()[0]):
        queue = parse_squeue(text)
        start_times = predict_start_times(queue, Scenario("now", "fcfs", "none", 8), [queue.jobs])
        assert (start_times.jobs, len(start_times.start_s), start_times.mean_wait_s) == ((), 0, 0.0)


def test_a_running_job_draws_from_the_run_times_it_has_not_passed():
    # Half of the past jobs used a tenth of their limit, half all of it. A job at half its limit is of the second kind.
    past = Jobs.build(np.arange(4), [10, 10, 100, 100], request_s=np.full(4, 100), cpus=np.ones(4))
    queue = parse_squeue("11|anna|RUNNING|4|1|1:00:00|30:00|None\n12|bo|PENDING|4|1|1:00:00|0:00|Priority\n")
    futures = draw_futures(queue, past, None, 50, np.random.default_rng(0))
    assert {float(jobs.run_s[0]) for jobs in futures} == {30 * MINUTE + 1}
    assert {float(jobs.run_s[1]) for jobs in futures} == {6 * MINUTE, 60 * MINUTE}


def test_a_job_that_has_passed_every_past_run_time_runs_to_its_limit():
    past = Jobs.build([0], [10], request_s=[100], cpus=[1])
    queue = parse_squeue("11|anna|RUNNING|4|1|1:00:00|30:00|None\n")
    (future,) = draw_futures(queue, past, None, 1, np.random.default_rng(0))
    assert future.run_s.tolist() == [30 * MINUTE + 1]


def test_without_a_past_all_jobs_run_to_their_limits():
    queue = parse_squeue(QUEUE)
    futures = draw_futures(queue, None, None, 10, np.random.default_rng(0))
    assert len(futures) == 1
    # The large job waits for the last end, at 30 min. Without backfilling the others wait for it.
    plain = predict_start_times(queue, Scenario("now", "fcfs", "none", 8), futures)
    assert plain.start_s.tolist() == [30 * MINUTE, 90 * MINUTE, 90 * MINUTE]
    easy = predict_start_times(queue, Scenario("easy", "fcfs", "easy", 8), futures)
    assert easy.start_s.tolist() == [30 * MINUTE, 0.0, 90 * MINUTE]
    larger = predict_start_times(queue, Scenario("larger", "fcfs", "none", 16), futures)
    assert larger.start_s.tolist() == [0.0, 0.0, 10 * MINUTE]


def test_several_futures_give_an_interval():
    rng = np.random.default_rng(0)
    queue = parse_squeue(QUEUE)
    past = Jobs.build(np.arange(100), rng.integers(1, 100, 100), request_s=np.full(100, 100), cpus=np.ones(100))

    def submissions(rng: np.random.Generator) -> Jobs:
        return Jobs.build(
            np.sort(rng.integers(1, 3600, 20)), np.full(20, 600), request_s=np.full(20, 600), cpus=np.full(20, 2)
        )

    futures = draw_futures(queue, past, submissions, 20, rng)
    assert {len(jobs) for jobs in futures} == {25}
    start_times = predict_start_times(queue, Scenario("now", "fcfs", "easy", 8), futures)
    assert (start_times.early_s <= start_times.start_s).all()
    assert start_times.early_s[0] < start_times.late_s[0] <= 30 * MINUTE
    assert start_times.mean_wait_low_s <= start_times.mean_wait_s <= start_times.mean_wait_high_s


def test_a_job_larger_than_the_machine_never_starts():
    queue = parse_squeue(QUEUE)
    start_times = predict_start_times(
        queue, Scenario("smaller", "fcfs", "easy", 6), draw_futures(queue, None, None, 1, np.random.default_rng(0))
    )
    assert np.isinf(start_times.start_s[0])
    assert np.isfinite(start_times.start_s[1:]).all()


def test_faulty_lines_of_squeue_are_named():
    with pytest.raises(InputError, match="squeue:1: 2 fields"):
        parse_squeue("11|anna")
    with pytest.raises(InputError, match="squeue:1: not a duration"):
        parse_squeue("11|anna|RUNNING|4|1|soon|30:00|None")
    with pytest.raises(InputError, match=r"queue.txt:1: '2:00:00' is not a number of CPUs or nodes; the fields are %i"):
        parse_squeue("11|anna|RUNNING|4|2:00:00|1:00:00|30:00|None", name="queue.txt")


def test_a_start_of_now_is_not_minus_zero():
    queue = parse_squeue("13|anna|PENDING|8|2|1:00:00|0:00|Priority\n")
    assert str(queue.jobs.submit_s[0]) == "0.0"


@pytest.mark.parametrize(
    "line",
    [
        f"11|anna|RUNNING|{'9' * 30}|1|1:00|0:30|None",
        "11|anna|RUNNING|-1|1|1:00|0:30|None",
        f"11|anna|RUNNING|1|1|1:00|{'9' * 400}:30|None",
        f"11|anna|RUNNING|1|1|{'9' * 400}:00|{'9' * 400}:30|None",
    ],
)
def test_a_number_that_no_job_has_is_one_sentence(line):
    with pytest.raises(InputError, match="squeue:1: "):
        parse_squeue(line)
    with pytest.raises(InputError, match="squeue:1: "):
        parse_site_queue(f"{line}|p|q|a|1|1G|N/A||OK|(null)")


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Slurm's commands, which print a text."""

    def answer(text: str) -> None:
        for name in ("squeue", "sinfo"):
            (tmp_path / name).write_text(f"#!/bin/sh\nprintf '{text}'\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return answer


def test_bytes_that_are_no_text_do_not_stop_the_reader(answers):
    answers(r"11|anna|RUNNING|4|1|1:00:00|0:30|\377\n")
    assert parse_squeue(read_squeue()).running == 1


@pytest.mark.parametrize("text", ["", "nothing", "1/2", "1/2/3/x", "9" * 30 + "/1/1/1"])
def test_a_size_that_is_none_is_one_sentence(answers, text):
    answers(text)
    with pytest.raises(InputError, match="sinfo: not allocated/idle/other/total"):
        read_size("cpus")


def test_the_size_is_what_is_allocated_or_idle(answers):
    answers(r"3/4/5/12\n1/0/0/1\n")
    assert read_size("cpus") == 8


def test_a_squeue_that_fails_is_one_line():
    with pytest.raises(SourceError, match=r"^sh failed: error: no such host fatal: no source$"):
        read_squeue(("sh", "-c", "printf 'error: no such host\\nfatal: no source\\n' >&2; exit 1"))


def test_a_missing_squeue_is_an_error():
    with pytest.raises(SourceError, match="no-such-squeue-command is not installed"):
        read_squeue(("no-such-squeue-command",))


def test_a_past_without_limits_is_refused():
    past = Jobs.build([0], [1], cpus=[1])
    with pytest.raises(SettingsError, match="no time limits"):
        draw_futures(parse_squeue(QUEUE), past, None, 2, np.random.default_rng(0))
