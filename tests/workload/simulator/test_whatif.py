import numpy as np
import pytest

from clustertwin.core.errors import InputError, SettingsError, SourceError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.squeue import parse_squeue, read_squeue
from clustertwin.workload.simulator.whatif import Scenario, answer, futures

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


def test_squeue_is_read_as_what_runs_and_what_waits():
    waiting = parse_squeue(QUEUE)
    assert (waiting.running, waiting.held) == (2, 1)
    assert waiting.jobs.submit_s.tolist() == [-1, -1, 0, 0, 0]
    assert waiting.jobs.request_s[2:].tolist() == [60 * MINUTE, 10 * MINUTE, 24 * 60 * MINUTE]
    assert waiting.jobs.names["user"] == ("anna", "bo")


def test_answers_name_the_jobs_as_slurm_does():
    waiting = parse_squeue(QUEUE)
    found = answer(waiting, Scenario("now", "fcfs", "none", 8), [waiting.jobs])
    assert found.jobs == ("13", "14", "15")


def test_nothing_waits_nothing_is_asked():
    for text in ("", QUEUE.splitlines()[0]):
        waiting = parse_squeue(text)
        found = answer(waiting, Scenario("now", "fcfs", "none", 8), [waiting.jobs])
        assert (found.jobs, len(found.start_s), found.mean_wait_s) == ((), 0, 0.0)


def test_what_has_run_for_long_is_not_thought_to_end_before_it_began():
    # Half of the past used a tenth of its limit, half all of it; a job at half its limit is of the second kind.
    past = Jobs.build(np.arange(4), [10, 10, 100, 100], request_s=np.full(4, 100), cpus=np.ones(4))
    waiting = parse_squeue("11|anna|RUNNING|4|1|1:00:00|30:00|None\n12|bo|PENDING|4|1|1:00:00|0:00|Priority\n")
    drawn = futures(waiting, past, None, 50, np.random.default_rng(0))
    assert {float(jobs.run_s[0]) for jobs in drawn} == {30 * MINUTE + 1}
    assert {float(jobs.run_s[1]) for jobs in drawn} == {6 * MINUTE, 60 * MINUTE}


def test_what_outlived_all_of_the_past_runs_to_its_limit():
    past = Jobs.build([0], [10], request_s=[100], cpus=[1])
    waiting = parse_squeue("11|anna|RUNNING|4|1|1:00:00|30:00|None\n")
    (drawn,) = futures(waiting, past, None, 1, np.random.default_rng(0))
    assert drawn.run_s.tolist() == [30 * MINUTE + 1]


def test_if_all_run_to_their_limits():
    waiting = parse_squeue(QUEUE)
    drawn = futures(waiting, None, None, 10, np.random.default_rng(0))
    assert len(drawn) == 1
    # The large job waits for the last end, at 30 min; without backfilling the others wait for it.
    plain = answer(waiting, Scenario("now", "fcfs", "none", 8), drawn)
    assert plain.start_s.tolist() == [30 * MINUTE, 90 * MINUTE, 90 * MINUTE]
    easy = answer(waiting, Scenario("easy", "fcfs", "easy", 8), drawn)
    assert easy.start_s.tolist() == [30 * MINUTE, 0.0, 90 * MINUTE]
    larger = answer(waiting, Scenario("larger", "fcfs", "none", 16), drawn)
    assert larger.start_s.tolist() == [0.0, 0.0, 10 * MINUTE]


def test_futures_spread_the_answer():
    rng = np.random.default_rng(0)
    waiting = parse_squeue(QUEUE)
    past = Jobs.build(np.arange(100), rng.integers(1, 100, 100), request_s=np.full(100, 100), cpus=np.ones(100))

    def coming(rng: np.random.Generator) -> Jobs:
        return Jobs.build(
            np.sort(rng.integers(1, 3600, 20)), np.full(20, 600), request_s=np.full(20, 600), cpus=np.full(20, 2)
        )

    drawn = futures(waiting, past, coming, 20, rng)
    assert {len(jobs) for jobs in drawn} == {25}
    found = answer(waiting, Scenario("now", "fcfs", "easy", 8), drawn)
    assert (found.early_s <= found.start_s).all()
    assert found.early_s[0] < found.late_s[0] <= 30 * MINUTE
    assert found.mean_wait_low_s <= found.mean_wait_s <= found.mean_wait_high_s


def test_a_job_that_no_longer_fits_never_starts():
    waiting = parse_squeue(QUEUE)
    found = answer(
        waiting, Scenario("smaller", "fcfs", "easy", 6), futures(waiting, None, None, 1, np.random.default_rng(0))
    )
    assert np.isinf(found.start_s[0])
    assert np.isfinite(found.start_s[1:]).all()


def test_what_squeue_did_not_say_is_named():
    with pytest.raises(InputError, match="squeue:1: 2 fields"):
        parse_squeue("11|anna")
    with pytest.raises(InputError, match="squeue:1: not a duration"):
        parse_squeue("11|anna|RUNNING|4|1|soon|30:00|None")


def test_no_slurm_is_a_source_that_does_not_answer():
    with pytest.raises(SourceError, match="squeue did not answer"):
        read_squeue(("no-such-squeue-command",))


def test_a_past_without_limits_is_refused():
    past = Jobs.build([0], [1], cpus=[1])
    with pytest.raises(SettingsError, match="no limits"):
        futures(parse_squeue(QUEUE), past, None, 2, np.random.default_rng(0))
