"""Logs in other encodings, with other separators or with numbers that no column holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats import read_report
from clustertwin.workload.slurm.joblog.job_readers import read_log

ROW = "{} {} 0 10 4 -1 -1 4 20 -1 1 {} 1 -1 1 -1 -1 -1\n"
SWF = "; MaxProcs: 16\n" + "".join(ROW.format(i, i * 5, 1) for i in range(1, 4))
SACCT = (
    "JobID|User|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqCPUS|State\n"
    "1|a|2024-01-01T00:00:00|2024-01-01T00:00:10|2024-01-01T00:01:10|60|5|4|COMPLETED\n"
)
HUGE = 10**23


@pytest.mark.parametrize("text", [SWF, SACCT], ids=["swf", "sacct"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_log_with_a_byte_order_mark_has_the_jobs_of_the_plain_one(tmp_path: Path, text: str, encoding: str):
    plain, marked = tmp_path / "plain", tmp_path / "marked"
    plain.write_text(text)
    marked.write_bytes((b"\xfe\xff" if encoding == "utf-16-be" else b"") + text.encode(encoding))
    ours, theirs = read_report(marked), read_report(plain)
    assert ours.jobs.cpus.tolist() == theirs.jobs.cpus.tolist()
    assert ours.jobs.header == theirs.jobs.header
    assert any("UTF-16" in finding.reason for finding in ours.findings) == encoding.startswith("utf-16")


def test_damaged_utf_16_is_refused_with_its_reason(tmp_path: Path):
    path = tmp_path / "log.swf"
    path.write_bytes(SWF.encode("utf-16")[:-1])
    with pytest.raises(TraceError, match="UTF-16 text and is damaged"):
        read_report(path)


def test_semicolons_are_named(tmp_path: Path):
    path = tmp_path / "log.sacct"
    path.write_text(SACCT.replace("|", ";"))
    with pytest.raises(TraceError, match=r":1: .*separated by ';'"):
        read_report(path)
    with pytest.raises(TraceError, match=r":1: .*separated by ';'"):
        read_log(path)
    path = tmp_path / "log.swf"
    path.write_text(SWF.replace(" ", ";"))
    with pytest.raises(TraceError, match="';' separates them"):
        read_report(path)


@pytest.mark.parametrize(
    ("row", "reason", "left"),
    [
        (ROW.format(HUGE, 20, 1), "job number 1e+23 is too large", [1, 2, 3, 4]),
        (ROW.format(4, 20, HUGE), "user 1e+23 is too large", [1, 2, 3, 4]),
        (ROW.format(4, HUGE, 1), "submit time 1e+23 is too large", [1, 2, 3]),
    ],
)
def test_a_number_beyond_64_bits_is_a_fault_with_its_line(tmp_path: Path, row: str, reason: str, left: list[int]):
    path = tmp_path / "log.swf"
    path.write_text(SWF + row)
    with pytest.raises(TraceError) as refused:
        read_report(path)
    assert f":5: {reason}" in str(refused.value)
    assert read_report(path, lenient=True).jobs.id.tolist() == left
