"""SWF: known answers, faults with their line, and round trips."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats import read, read_report, swf, write
from clustertwin.workload.formats.parsing.findings import LogFindings
from clustertwin.workload.jobs import Jobs, Machine

LOG_NAME = "log.swf"
HEADER = "; Version: 2.2\n; UnixStartTime: 843480031\n; TimeZoneString: Europe/Stockholm\n; MaxProcs: 100\n"
LINE = "{id} {submit} 5 60 {procs} -1 -1 {procs} 3600 -1 1 7 2 -1 3 -1 -1 -1"


def line(id: int = 1, submit: float = 0, procs: int = 4) -> str:
    return LINE.format(id=id, submit=submit, procs=procs)


def test_fields_become_columns(log):
    jobs = read(log(HEADER + line(7, 12, 4) + "\n"))
    row = {name: values[0] for name, values in jobs.columns().items()}
    assert row == {"id": 7, "submit_s": 12, "wait_s": 5, "run_s": 60, "request_s": 3600, "nodes": -1, "cpus": 4,
                   "gpus": -1, "memory_bytes": -1, "user": 7, "group": 2, "queue": 3, "status": 1}  # fmt: skip
    assert (jobs.epoch_s, jobs.machine.cpus, jobs.timezone) == (843480031, 100, "Europe/Stockholm")


def test_processors_are_the_requested_ones_or_the_allocated_ones_without_a_request(log):
    asked, given_ = line(1).replace("4 -1 -1 4", "8 -1 -1 6"), line(2, 1).replace("4 -1 -1 4", "8 -1 -1 -1")
    assert read(log(f"{asked}\n{given_}\n")).cpus.tolist() == [6, 8]


def test_memory_is_kilobytes_a_processor(log):
    row = line(1, 0, 4).split()
    row[9] = "100"
    assert read(log(" ".join(row) + "\n")).memory_bytes[0] == 100 * 1024 * 4


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("1 2 3", "3 fields, SWF has 18"),
        (line(2).replace("3600", "soon"), "field 9 is 'soon', not a number"),
        (line(2).replace("3600", "nan"), "field 9 is 'nan', not a finite number"),
        (line(2, 11).replace("3600", "-7"), "requested time -7 is negative"),
        (line(2, -1), "submit time -1 is negative"),
        (line(2, 5), "submit time 5 is out of order: an earlier line has 10"),
        (line(1, 11), "job number 1 already appears on line 5"),
        (line(2, 11, 512), "512 processors, but the header says MaxProcs: 100"),
        (line(2, 11).replace(" 4 ", " 4.5 "), "number of processors 4.5 is not a whole number"),
        (line(2, 11).replace(" 7 2 ", " 7.5 2 "), "user 7.5 is not a whole number"),
    ],
)
def test_a_fault_is_refused_with_file_line_and_reason_and_a_lenient_read_continues(log, bad, reason):
    path = log(HEADER + line(1, 10) + "\n" + bad + "\n" + line(9, 12) + "\n")
    with pytest.raises(TraceError) as refused:
        read(path)
    assert (refused.value.where, refused.value.line) == (str(path), 6)
    assert reason in refused.value.reason
    parsed = read_report(path, lenient=True)
    assert [(fault.line, fault.fate) for fault in parsed.faults] in ([(6, "dropped")], [(6, "repaired")])
    assert len(parsed.jobs) == 3 - (parsed.faults[0].fate == "dropped")
    assert 9 in parsed.jobs.id


def test_dates_and_misplaced_columns_of_a_bad_converter_are_recognised(log):
    rows = [f"{i} {1_672_529_301 + i} 71 3632 8 3600 -1 -1 -1 -1 -1 0 -1 -1 -1 -1 -1 -1" for i in range(12)]
    path = log("\n".join(rows) + "\n")
    with pytest.raises(TraceError, match=r":1: misplaced columns.*and 1 more"):
        read(path)
    jobs = read(path, lenient=True)
    assert jobs.request_s[0] == 3600
    assert (jobs.epoch_s, jobs.submit_s[0]) == (1_672_529_301, 0)


def test_more_jobs_than_the_header_says_is_a_fault_and_fewer_are_noted(log):
    body = line(1) + "\n" + line(2, 1) + "\n"
    with pytest.raises(TraceError, match="2 jobs, but the header says MaxJobs: 1"):
        read(log("; MaxJobs: 1\n" + body))
    assert [finding.fate for finding in read_report(log("; MaxJobs: 3\n" + body)).findings] == ["noted"]


def test_nodes_of_several_sizes_lose_no_processor(tmp_path, log):
    """806 processors on 219 nodes were 657: 219 times 3."""
    parsed = read_report(log("; MaxNodes: 219\n; MaxProcs: 806\n" + line(1, 0, 700) + "\n"))
    assert parsed.jobs.machine.cpus == 806
    assert parsed.findings[0].reason.startswith("MaxProcs: 806 is no multiple of MaxNodes: 219")
    write(parsed.jobs, tmp_path / "out.swf")
    assert read(tmp_path / "out.swf").machine.cpus == 806


def test_partial_records_of_a_checkpointed_job_are_skipped_and_noted(log):
    part = line(1, 0).split()
    part[10] = "2"
    parsed = read_report(log(line(1, 0) + "\n" + " ".join(part) + "\n"))
    assert len(parsed.jobs) == 1
    assert [(finding.line, finding.fate) for finding in parsed.findings] == [(2, "noted")]


def test_an_unknown_zone_in_the_header_is_noted_and_read_as_utc(log):
    parsed = read_report(log("; TimeZoneString: Sweden, mostly\n" + line(1) + "\n"))
    assert parsed.jobs.timezone == "UTC"
    assert "Sweden, mostly" in parsed.findings[0].reason


def test_a_time_that_no_calendar_has_is_named(log):
    """`twin trace describe` and `convert` ended in a traceback."""
    with pytest.raises(TraceError, match=r":6: submit time 9e\+11 is too large"):
        read(log(HEADER + line(1) + "\n" + line(2, 900_000_000_000) + "\n"))
    parsed = read_report(log(HEADER.replace("843480031", "9" * 15) + line(1) + "\n"))
    assert parsed.jobs.epoch_s == 0
    assert "is no date" in parsed.findings[0].reason


@pytest.mark.parametrize("text", ["", "\n\n", "; Version: 2.2\n"])
def test_a_file_without_jobs_is_refused(log, text):
    with pytest.raises(TraceError, match="empty"):
        read(log(text))


@given(
    st.lists(st.lists(st.integers(-1, 10**9), min_size=18, max_size=18), min_size=1, max_size=8),
    st.sampled_from([" ", "  ", "\t"]),
)
def test_a_block_and_its_single_lines_give_the_same_table(rows, gap):
    text = ("\n".join(gap.join(map(str, row)) for row in rows) + "\n").encode()
    bulk = swf._parse_bulk(text)
    by_line, numbers = swf._parse_lines(text, 1, [], LogFindings("x"))
    assert np.array_equal(bulk, by_line)
    assert numbers.tolist() == list(range(1, len(rows) + 1))


def test_a_word_in_the_first_field_costs_its_line_only(monkeypatch):
    """With older versions of numpy, such as 2.1, the other lines of the block were lost without a word."""

    def numbers_before_the_first_word(text, sep):
        return np.array([float(word) for word in takewhile(str.isdecimal, text.replace("-1", "1").split())])

    monkeypatch.setattr(np, "fromstring", numbers_before_the_first_word)
    findings = LogFindings("x")
    raw = swf.parse([f"{line(1)}\n{line(2).replace('2', 'two', 1)}\n{line(3)}\n".encode()], findings)
    assert raw.columns["id"].tolist() == [1, 3]
    assert [finding.line for finding in findings.settle(lenient=True)] == [2]


def test_a_log_cut_into_blocks_is_the_same_log(log):
    text = (HEADER + "".join(line(i, i) + "\n" for i in range(1, 50))).encode()
    undivided = swf.parse([text], LogFindings("x"))
    pieces = swf.parse([row + b"\n" for row in text.splitlines()], LogFindings("x"))
    assert np.array_equal(undivided.lines, pieces.lines)
    assert all(np.array_equal(undivided.columns[name], pieces.columns[name]) for name in undivided.columns)


def test_the_header_is_kept_and_its_job_counts_are_updated(tmp_path, log):
    jobs = read(log("; Computer: IBM SP2\n; MaxJobs: 9\n; Note: kept\n" + HEADER + line(1) + "\n"))
    write(jobs, tmp_path / "out.swf")
    header = [row.rstrip() for row in (tmp_path / "out.swf").read_text().splitlines() if row.startswith(";")]
    assert header[:3] == ["; Computer: IBM SP2", "; MaxJobs: 1", "; Note: kept"]
    assert "; UnixStartTime: 843480031" in header


def test_parts_are_streamed_into_one_log(tmp_path):
    parts = (Jobs.build([float(i)], [1.5], id=[i], cpus=[1]) for i in range(5))
    assert write(parts, tmp_path / "out.swf") == 5
    assert read(tmp_path / "out.swf").id.tolist() == [0, 1, 2, 3, 4]
    assert "; MaxJobs: 5" in (tmp_path / "out.swf").read_text()


def test_nodes_are_written_as_processors_if_the_log_has_no_cpus(tmp_path):
    write(Jobs.build([0.0], [1.0], nodes=[3], machine=Machine(nodes=8)), tmp_path / "out.swf")
    assert read(tmp_path / "out.swf").cpus.tolist() == [3]
    assert "processors are nodes" in (tmp_path / "out.swf").read_text()


def test_every_job_of_the_archive_s_kth_log_is_read(data):
    jobs = read(data / "traces/swf/KTH-SP2-1996-2.1-cln.swf")
    assert (len(jobs), jobs.machine.cpus, jobs.timezone) == (28489, 100, "Europe/Stockholm")


def test_a_badly_converted_log_in_the_wild_is_refused_or_reported(data):
    path = data / "traces/swf/theta-malformed.swf"
    with pytest.raises(TraceError, match=r"theta-malformed.swf:5: misplaced columns"):
        read(path)
    parsed = read_report(path, lenient=True)
    assert len(parsed.jobs) == 23387
    assert any("out of order" in fault.reason for fault in parsed.faults)
