"""Job logs and Slurm's files, damaged or hostile: each is read, or refused by an error with the file and the line."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.hostile_inputs import attempt, fuzzed, seeds

from clustertwin.core.errors import InputError, TraceError
from clustertwin.workload import formats
from clustertwin.workload.formats.parsing import byte_stream
from clustertwin.workload.slurm.joblog.job_readers import read_log
from clustertwin.workload.slurm.site.conf_lines import SiteError
from clustertwin.workload.slurm.site.site_directory import read_site

SCRATCH = tempfile.TemporaryDirectory(prefix="hostile-logs-")
DIRECTORY = Path(SCRATCH.name)
CONF = seeds("slurm_conf")[0]


def written(content: bytes, name: str = "log") -> Path:
    path = DIRECTORY / name
    path.write_bytes(content)
    return path


def is_read_or_refused(content: bytes, format: str, lenient: bool) -> None:
    path = written(content)
    jobs = attempt(lambda: formats.read(path, lenient=lenient, format=format), InputError)
    if jobs is not None:
        assert np.isfinite(jobs.submit_s).all()
        assert min(jobs.wait_s.min(), jobs.run_s.min()) >= -1
    attempt(lambda: formats.sniff(path), InputError)


@fuzzed("swf", st.booleans(), values=(True,))
def test_a_log_in_the_standard_workload_format(content: bytes, lenient: bool) -> None:
    is_read_or_refused(content, "swf", lenient)


@fuzzed("sacct", st.booleans(), values=(True,))
def test_a_log_of_sacct(content: bytes, lenient: bool) -> None:
    is_read_or_refused(content, "sacct", lenient)


@fuzzed("alcf", st.booleans(), values=(True,))
def test_a_log_of_argonne(content: bytes, lenient: bool) -> None:
    is_read_or_refused(content, "alcf", lenient)


@fuzzed("supercloud", st.booleans(), values=(True,))
def test_a_log_of_supercloud(content: bytes, lenient: bool) -> None:
    is_read_or_refused(content, "supercloud", lenient)


@fuzzed("slurm_job_log")
def test_a_log_for_the_simulated_slurm(content: bytes) -> None:
    attempt(lambda: read_log(written(content)), InputError)


@fuzzed("slurm_conf")
def test_a_slurm_conf(content: bytes) -> None:
    site = attempt(lambda: read_site(written(content, "only.conf")), SiteError)
    assert site is None or site.node_names


@fuzzed("slurm_accounts")
def test_the_accounts_of_a_site(content: bytes) -> None:
    directory = DIRECTORY / "site"
    directory.mkdir(exist_ok=True)
    (directory / "slurm.conf").write_bytes(CONF.replace(b"Include weights.conf\n", b"").replace(b"QOS=high", b""))
    (directory / "sacctmgr.dump").write_bytes(content)
    attempt(lambda: read_site(directory), SiteError)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(("format", "start"), [("swf", seeds("swf")[0]), ("sacct", seeds("sacct")[0])])
def test_a_line_longer_than_any_line_is_refused_with_its_number(format, start, pack, tmp_path, monkeypatch) -> None:
    """One line of 300 MB filled the memory before; here the limit is the block of the reader, 4 MiB."""
    path = tmp_path / "log"
    path.write_bytes(pack(start + b"7 " * (3 * byte_stream.LONGEST_LINE // 2) + b"\n"))
    line = start.count(b"\n") + 1
    with pytest.raises(TraceError, match=rf"log:{line}: the line is longer than 4,194,304 bytes"):
        formats.read(path, format=format)


def test_a_long_line_of_a_log_for_the_simulated_slurm_is_refused(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_bytes(seeds("slurm_job_log")[1] + b"7|" * byte_stream.LONGEST_LINE)
    with pytest.raises(TraceError, match="the line is longer than"):
        read_log(path)


@pytest.mark.parametrize("read", [formats.read, read_log, read_site])
def test_a_fifo_and_a_loop_of_links_are_refused(read, tmp_path) -> None:
    """A FIFO blocked the reader for ever."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("fifo", "loop"):
        with pytest.raises(InputError, match=name):
            read(tmp_path / name)


def test_a_line_with_many_separators_is_dropped_soon(tmp_path) -> None:
    """The number of ways to assign separators to free-text columns grows exponentially."""
    names = "JobID|Submit|JobName|Comment|AdminComment|SubmitLine|WorkDir|Extra"
    path = tmp_path / "log"
    path.write_text(f"{names}\n1|2024-06-03T08:00:00|a|b|c|d|e|f\n2|2024-06-03T08:00:00{'|x' * 200}\n")
    parsed = formats.read_report(path, lenient=True, format="sacct")
    assert [finding.line for finding in parsed.faults] == [3]
