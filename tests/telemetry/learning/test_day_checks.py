"""Which days are skipped, and which only get a note."""

from dataclasses import replace

from clustertwin.telemetry.learning.night.day_census import DayCensus
from clustertwin.telemetry.learning.night.day_checks import check_day
from clustertwin.telemetry.learning.night.day_sampling import DaySplit

SPLIT = DaySplit(*[tuple(range(9))] * 3)
ONE_NODE = DayCensus(0, 1, {"n0": 1.0}, 8, 9000, independent_windows=9000)


def test_a_day_with_too_few_nodes_is_skipped_and_names_them():
    last = DayCensus(0, 1, {f"n{i}": 1.0 for i in range(5)}, 40, 9000, independent_windows=9000)
    alone = DayCensus(0, 1, {"n0": 1.0, "n1": 0.1}, 8, 9000, independent_windows=9000)
    assert "4 of 5 nodes are missing: n1, n2, n3, n4" in check_day(alone, SPLIT, 0.0, last, False).skip
    assert check_day(alone, SPLIT, 0.0, None, False).skip == ""  # without an earlier night nothing is missing


def test_a_large_drift_is_skipped_unless_it_is_expected():
    assert "the champion alarms on 80% of the day" in check_day(ONE_NODE, SPLIT, 0.8, None, False).skip
    assert check_day(ONE_NODE, SPLIT, 0.8, None, True).skip == ""


def test_a_common_job_type_that_did_not_run_is_noted():
    last = replace(ONE_NODE, job_types={"np": 500, "mpi-2": 500, "rare": 1})
    now = replace(last, job_types={"np": 900})
    assert check_day(now, SPLIT, 0.0, last, False).notes == ("common job types that did not run: mpi-2",)


def test_the_minimum_is_evidence_and_not_a_number_of_windows():
    little = replace(ONE_NODE, windows=100_000, independent_windows=30, jobs=2, job_types={"np": 30})
    skip = check_day(little, SPLIT, 0.0, None, False).skip
    assert skip == "0.8 thread-hours (2 jobs, 1 programs, 30 independent windows); at least 1 thread-hours are needed"
    assert check_day(replace(little, windows=40, independent_windows=36), SPLIT, 0.0, None, False).skip == ""
