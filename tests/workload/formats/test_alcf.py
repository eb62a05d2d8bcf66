"""Argonne's CSV: hashed users, intervals instead of dates, and the fractional counts of published generators."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats import read, read_report, write
from clustertwin.workload.jobs import Jobs, Status

LOG_NAME = "log.csv"
DATED = """\
,job,user,project,state,gpu_num,cpu_num,node_num,submit_time,wait_time,run_time,wall_time,x,new_status
0,11,24166353244411.0,33510060530859.0,0,0,512.0,8.0,1672529301,71,3632.92,3600.0,8.07,Killed
1,12,0.0,0.0,0,0,64.0,1.0,1672529201,5,10.5,3600.0,0.1,Pass
2,13,24166353244411.0,0.0,0,0,128.0,2.0,1672529401,5,10.5,3600.0,0.1,Failed
"""
INTERVALS = """u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status
0,1,0,512,8,0,3600,3600,Pass
1,17,0,64,1,50,10,60,Killed
"""


def test_jobs_come_in_the_order_of_submission_with_small_codes_for_users(log):
    jobs = read(log(DATED))
    assert jobs.id.tolist() == [12, 11, 13]
    assert (jobs.epoch_s, jobs.submit_s.tolist()) == (1672529201, [0, 100, 200])
    assert jobs.user.tolist() == [-1, 0, 0]
    assert jobs.names["user"] == ("24166353244411",)
    assert jobs.status.tolist() == [Status.COMPLETED, Status.CANCELLED, Status.FAILED]
    assert jobs.machine.cpus_per_node == 64


def test_a_negative_interval_is_a_fault(log):
    """The job went back in time, and the log was sorted without a word."""
    with pytest.raises(TraceError, match=":4: interval -20 is negative"):
        read(log(INTERVALS + "2,17,0,64,1,-20,10,60,Pass\n"))


def test_intervals_add_up_to_submit_times_and_small_users_stay_as_they_are(log):
    jobs = read(log(INTERVALS))
    assert (jobs.submit_s.tolist(), jobs.user.tolist(), jobs.epoch_s) == ([0, 50], [1, 17], 0)


def test_a_fractional_node_count_is_refused_or_rounded_and_kept_as_written(log):
    path = log(INTERVALS.replace("64,1,", "64.2,0.4,"))
    with pytest.raises(TraceError, match=r"log.csv:3: node_num 0.4 is not a whole number"):
        read(path)
    parsed = read_report(path, lenient=True)
    assert (parsed.jobs.nodes.tolist(), parsed.jobs.cpus.tolist()) == ([8, 1], [512, 64])
    assert parsed.as_written["nodes"].tolist() == [8, 0.4]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("2,3,0,64,1,50,10,60", "8 fields, but the first line has 9"),
        ("2,3,0,64,1,50,ten,60,Pass", "run_time is 'ten': not a number"),
        ("2,3,0,64,1,50,10,60,Lost", "new_status is 'Lost': expected one of Pass, Failed, Killed"),
        ("2,3,0,64,1,50,-10,60,Pass", "run_time -10 is negative"),
        ("1,3,0,64,1,50,10,60,Pass", "u_id 1 already appears on line 3"),
    ],
)
def test_a_fault_names_its_line(log, bad, reason):
    path = log(INTERVALS + "\n" + bad + "\n")  # the empty line 4 is not a fault
    with pytest.raises(TraceError) as refused:
        read(path)
    assert refused.value.line == 5
    assert reason in refused.value.reason
    assert len(read(path, lenient=True)) in (2, 3)


def test_the_published_real_and_synthetic_logs_are_read(data):
    theta = data / "traces/theta"
    assert len(read(theta / "theta-2023.csv")) == 14374
    assert len(read(theta / "thetagpu-2023.csv")) == 22606
    slice_ = read(theta / "theta-15000-intervals.csv")
    assert (len(slice_), slice_.nodes.max(), slice_.machine.cpus_per_node) == (15000, 4392, 64)
    parsed = read_report(theta / "published/ctgan.csv", lenient=True)
    assert len(parsed.jobs) == 15000
    assert np.mean(parsed.as_written["nodes"] % 1 != 0) > 0.9


def test_a_user_with_the_number_0_stays_a_user(tmp_path):
    """Argonne writes 0 for an unknown user, and the users of generated logs count from 0: the first one was lost."""
    write(Jobs.build([0.0, 1, 2], [1.0] * 3, cpus=[1] * 3, user=[0, 1, -1], group=[0, 0, 0]), tmp_path / "log.csv")
    again = read(tmp_path / "log.csv")
    assert [again.names["user"][code] for code in again.user[:2]] == ["user-0", "1"]
    assert (again.user[2], again.group.tolist()) == (-1, [0, 0, 0])
