import numpy as np

from clustertwin.workload.jobs import COLUMNS, Jobs


def test_what_is_not_given_is_unknown():
    jobs = Jobs.build(submit_s=[0, 5], run_s=[1, 2], nodes=[3, 4])
    assert jobs.cpus.tolist() == [-1, -1]
    assert jobs.nodes.tolist() == [3, 4]
    assert jobs.id.tolist() == [1, 2]


def test_columns_are_the_thirteen_of_the_table():
    assert len(COLUMNS) == 13
    assert COLUMNS[0] == "id"
    assert COLUMNS[-1] == "status"


def test_take_keeps_every_column_aligned():
    jobs = Jobs.build(submit_s=[0, 5, 9], run_s=[1, 2, 3]).take(np.array([True, False, True]))
    assert jobs.submit_s.tolist() == [0, 9]
    assert jobs.interval_s.tolist() == [0, 9]
