"""sacct --parsable2: arrays, steps, missing limits and values, clock changes, a pipe in a job name."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats import read, read_report
from clustertwin.workload.formats.parsing.slurm_fields import parse_duration, parse_memory
from clustertwin.workload.jobs import Status

LOG_NAME = "jobs.sacct"
HEADER = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|State|Submit|Start|End|Elapsed|Timelimit|ReqCPUS|AllocCPUS|AllocNodes"
    "|ReqMem|AllocTRES\n"
)
DAY = "2024-06-03T"
LOG = (
    HEADER
    + """\
101|101|lattice|ann|phys|batch|COMPLETED|D08:00:00|D08:00:10|D09:00:10|01:00:00|02:00:00|8|8|1|16G|cpu=8,gres/gpu=2,node=1
101.batch|101.batch|batch||phys||COMPLETED|D08:00:10|D08:00:10|D09:00:10|01:00:00||8|8|1||cpu=8,mem=16G,node=1
102_7|104|scan|bob|bio|long|CANCELLED by 1000|D08:01:00|D08:01:00|2024-06-04T09:01:01|1-01:00:01|UNLIMITED|4|64|2|2Gc|
102_[8-9]|102|scan|bob|bio|long|PENDING|D08:01:00|Unknown|Unknown|00:00:00|Partition_Limit|4|0|0|4000M|
105|105|a|b|c|ann|phys|batch|TIMEOUT|D08:02:00|D08:03:00|D08:05:00|00:02:00|00:02:00|1|1|1|1G|cpu=1,node=1
106|106|gone|ann|phys|batch|CANCELLED by 7|D08:04:00|None|D08:05:00|00:00:00|00:10:00|16|0|0|1G|
""".replace("|D", "|" + DAY)
)


def test_jobs_arrays_and_steps(log):
    parsed = read_report(log(LOG), timezone="Europe/Rome")
    jobs = parsed.jobs
    assert jobs.id.tolist() == [101, 104, 102, 105, 106]
    assert jobs.submit_s.tolist() == [0, 60, 60, 120, 240]
    assert jobs.epoch_s == 1717394400  # 08:00 in Rome in summer is 06:00 UTC
    assert jobs.wait_s.tolist() == [10, 0, -1, 60, -1]
    assert jobs.run_s.tolist() == [3600, 90001, -1, 120, 0]
    assert jobs.request_s.tolist() == [7200, -1, -1, 120, 600]
    assert jobs.cpus.tolist() == [8, 64, 4, 1, 16]  # allocated, or requested if the job never started
    assert jobs.gpus.tolist() == [2, 0, 0, 0, 0]
    assert jobs.memory_bytes[:2].tolist() == [16 * 2**30, 64 * 2 * 2**30]
    done, gone, unknown = Status.COMPLETED, Status.CANCELLED, Status.UNKNOWN
    assert jobs.status.tolist() == [done, gone, unknown, gone, gone]
    assert [jobs.names["user"][code] for code in jobs.user] == ["ann", "bob", "bob", "ann", "ann"]
    reasons = " / ".join(finding.reason for finding in parsed.findings)
    assert "job step lines skipped: 1" in reasons
    assert "102_[8-9]" in reasons
    assert not parsed.faults


def test_gpus_that_are_counted_by_their_type_only_are_counted(log):
    """A site may track gres/gpu:a100 and not gres/gpu: its jobs had no GPUs."""
    types = LOG.replace("gres/gpu=2", "gres/gpu:a100=2,gres/gpu:v100=1")
    assert read(log(types)).gpus.tolist() == [3, 0, 0, 0, 0]
    both = LOG.replace("gres/gpu=2", "gres/gpu=2,gres/gpu:a100=2")
    assert read(log(both)).gpus.tolist() == [2, 0, 0, 0, 0]


def test_a_pipe_in_a_name_is_assigned_to_the_name_and_noted(log):
    findings = read_report(log(LOG), timezone="UTC").findings
    notes = {finding.line: finding.reason for finding in findings if finding.line}
    assert "2 more '|' than columns" in notes[6]


def test_a_line_that_can_be_split_in_two_ways_is_refused(log):
    text = "JobID|JobName|Comment|Submit\n1|a|b|c|2024-06-03T08:00:00\n"
    with pytest.raises(TraceError, match=r":2: 5 fields, but the first line has 4"):
        read(log(text))


def test_the_elapsed_time_decides_which_repeated_hour_is_meant(log):
    # Rome, 27 October 2024: 03:00 summer time became 02:00. Both jobs start at a 02:50 of that night.
    rows = [
        "1|2024-10-27T02:40:00|2024-10-27T02:50:00|2024-10-27T02:10:00|1200|COMPLETED",  # summer into winter
        "2|2024-10-27T02:40:00|2024-10-27T02:50:00|2024-10-27T03:10:00|1200|COMPLETED",  # winter only
    ]
    jobs = read(log("JobID|Submit|Start|End|ElapsedRaw|State\n" + "\n".join(rows) + "\n"), timezone="Europe/Rome")
    start = jobs.epoch_s + jobs.submit_s + jobs.wait_s
    assert (start[jobs.id == 2] - start[jobs.id == 1])[0] == 3600
    assert jobs.run_s.tolist() == [1200, 1200]


def test_a_local_time_that_does_not_exist_is_a_fault(log):
    path = log("JobID|Submit\n1|2024-03-31T01:30:00\n2|2024-03-31T02:30:00\n")
    with pytest.raises(TraceError, match=r":3: Submit is .*the clock change skips it"):
        read(path, timezone="Europe/Rome")
    assert len(read(path, timezone="UTC")) == 2


@pytest.mark.parametrize("stamp", ["2024-06-03T08:00:00+02:00", "2024-06-03T08:00:00+0200", "1717394400"])
def test_times_with_an_offset_need_no_zone(log, stamp):
    parsed = read_report(log(f"JobID|Submit\n1|{stamp}\n"))
    assert (parsed.jobs.epoch_s, parsed.findings) == (1717394400, ())


def test_local_times_without_a_zone_are_read_as_utc_and_noted(log):
    parsed = read_report(log("JobID|Submit\n1|2024-06-03T08:00:00\n"))
    assert "using UTC" in parsed.findings[0].reason


def test_arrays_without_raw_ids_are_numbered(log):
    jobs = read(log("JobID|Submit\n7_1|2024-06-03T08:00:00\n7_2|2024-06-03T08:00:00\n"))
    assert jobs.id.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("word", "seconds"),
    [("00:02:00", 120), ("1-01:00:01", 90001), ("05:30", 330), ("UNLIMITED", -1), ("Partition_Limit", -1), ("", -1)],
)
def test_durations(word, seconds):
    assert parse_duration(word) == seconds


@pytest.mark.parametrize(
    ("word", "number"),
    [("4000M", 4000 * 2**20), ("2Gc", 16 * 2**30), ("2Gn", 4 * 2**30), ("0", -1), ("1.5G", 1.5 * 2**30)],
)
def test_memory(word, number):
    assert parse_memory(word, nodes=2, cpus=8) == number


def test_unknown_words_are_faults(log):
    path = log("JobID|Submit|State\n1|2024-06-03T08:00:00|SLEEPING\nx|2024-06-03T08:00:00|COMPLETED\n")
    with pytest.raises(TraceError, match="SLEEPING"):
        read(path)
    parsed = read_report(path, lenient=True)
    assert [fault.line for fault in parsed.faults] == [2, 3]
    assert np.array_equal(parsed.jobs.status, [-1])


@pytest.mark.parametrize("lenient", [False, True])
def test_a_column_that_appears_twice_is_refused(log, lenient):
    with pytest.raises(TraceError, match=r"jobs\.sacct:1: the column State appears twice"):
        read(log(LOG.replace("|Account|", "|State|", 1)), lenient=lenient)


MARK = "|0f1e2d3c4b5a6978|"


def test_a_job_name_cannot_add_a_row_to_a_log_with_a_random_separator(log):
    names = ("JobIDRaw", "JobName", "User", "Submit")
    rows = [names, ("1", "x\n9|-|x|-|eve|-|50\nz", "ann", "100"), ("2", "a|b", "bob", "101"), ("3", "c", "cay", "102")]
    path = log("".join(MARK.join(row) + "\n" for row in rows))
    with pytest.raises(TraceError, match=r"jobs\.sacct:2: 3 fields"):
        read(path)
    report = read_report(path, lenient=True)
    assert report.jobs.names["user"] == ("cay", "bob")
    assert sorted(report.jobs.id) == [2, 3]
    assert [fault.line for fault in report.faults] == [2, 3, 4]
    assert "part of a user's text" in report.faults[1].reason


def test_a_log_with_texts_of_users_says_that_rows_can_be_forged(log):
    notes = [
        finding.reason for finding in read_report(log("JobID|JobName|Submit\n1|x\n9|y|50\n"), lenient=True).findings
    ]
    assert any("texts of users (JobName)" in note for note in notes)
    assert not any("texts of users" in finding.reason for finding in read_report(log("JobID|Submit\n1|50\n")).findings)


def test_no_job_starts_before_its_submission_in_a_repeated_hour(log):
    """Start and end of the first job fit both hours equally well, and the second one still runs."""
    rows = (
        "1|2024-10-27T02:55:00|2024-10-27T02:46:00|2024-10-27T02:50:00|240|COMPLETED",
        "2|2024-10-27T02:55:00|2024-10-27T02:46:00|Unknown|240|RUNNING",
    )
    jobs = read(log("JobID|Submit|Start|End|ElapsedRaw|State\n" + "\n".join(rows) + "\n"), timezone="Europe/Rome")
    assert (jobs.wait_s.tolist(), jobs.run_s.tolist()) == ([51 * 60, 51 * 60], [240, -1])
