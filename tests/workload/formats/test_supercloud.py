"""The dump of Slurm's job table as MIT SuperCloud publishes it."""

from __future__ import annotations

import pytest

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats import read, read_report, write
from clustertwin.workload.jobs import Jobs, Status

LOG_NAME = "slurm-log.csv"
HEADER = (
    "id_job,id_array_job,id_array_task,id_user,kill_requid,nodes_alloc,nodelist,cpus_req,derived_ec,exit_code,gres_used,"
    "constraints,flags,mem_req,partition,priority,state,timelimit,time_submit,time_eligible,time_start,time_end,"
    "time_suspended,track_steps,tres_alloc,tres_req,job_type\n"
)
LOG = HEADER + (
    '5,0,4294967294,9001,-1,2,"r1,r2",40,0,0,gpu:volta:2,,1,9223372036854775858,normal,7,3,1440,1700000100,'
    '1700000100,1700000160,1700003760,0,0,"1=80,2=8000,4=2,5=80,1001=4,1002=4","1=80,4=2",batch\n'
    "6,0,4294967294,9002,-1,0,None assigned,40,0,0,,,1,8000,normal,7,4,4294967295,1700000000,0,0,1700000050,0,0,,"
    '"1=40,4=1",batch\n'
)


def test_a_job_that_ran_and_one_that_never_started(log):
    parsed = read_report(log(LOG))
    jobs = parsed.jobs
    assert parsed.format == "supercloud"
    assert (jobs.id.tolist(), jobs.epoch_s, jobs.submit_s.tolist()) == ([6, 5], 1700000000, [0, 100])
    assert (jobs.wait_s.tolist(), jobs.run_s.tolist()) == ([-1, 60], [0, 3600])
    assert jobs.request_s.tolist() == [-1, 86400]
    assert jobs.nodes.tolist() == [1, 2]
    assert jobs.cpus.tolist() == [40, 80]
    assert jobs.gpus.tolist() == [0, 4]
    assert jobs.status.tolist() == [Status.CANCELLED, Status.COMPLETED]


def test_memory_is_per_node_or_with_the_top_bit_set_per_cpu(log):
    jobs = read(log(LOG))
    assert jobs.memory_bytes.tolist() == [8000 * 2**20, 50 * 2**20 * 80]


def test_a_truncated_line_is_refused(log):
    with pytest.raises(TraceError, match=r"slurm-log.csv:4: 2 fields, but the first line has 27"):
        read(log(LOG + "7,8\n"))


def test_a_run_time_with_an_unknown_wait_is_kept(tmp_path):
    """Generated logs have no waits: all their run times were written as 0."""
    jobs = Jobs.build([0.0, 5.0], [60.0, 0.0], cpus=[1, 1], epoch_s=1_700_000_000.0)
    write(jobs, tmp_path / "log.csv", format="supercloud")
    again = read(tmp_path / "log.csv")
    assert (again.run_s.tolist(), again.wait_s.tolist()) == ([60, 0], [0, -1])
