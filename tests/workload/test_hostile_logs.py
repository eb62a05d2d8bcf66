"""Job logs and Slurm's files, damaged or hostile: each is read, or refused by an error with the file and the line."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.hostile_inputs import attempt, boolean, fuzzed, scratch, seeds

from clustertwin.core.errors import InputError, TraceError
from clustertwin.workload import formats
from clustertwin.workload.formats.parsing import byte_stream, delimited, findings
from clustertwin.workload.slurm.joblog.job_readers import read_log
from clustertwin.workload.slurm.site.conf_lines import SiteError
from clustertwin.workload.slurm.site.site_directory import read_site

DIRECTORY = scratch("logs")
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


@fuzzed("swf", boolean, values=(True,))
def test_a_log_in_the_standard_workload_format(content: bytes, lenient: bool) -> None:
    is_read_or_refused(content, "swf", lenient)


@fuzzed("sacct", boolean, values=(True,))
def test_a_log_of_sacct(content: bytes, lenient: bool) -> None:
    is_read_or_refused(content, "sacct", lenient)


@fuzzed("alcf", boolean, values=(True,))
def test_a_log_of_argonne(content: bytes, lenient: bool) -> None:
    is_read_or_refused(content, "alcf", lenient)


@fuzzed("supercloud", boolean, values=(True,))
def test_a_log_of_supercloud(content: bytes, lenient: bool) -> None:
    is_read_or_refused(content, "supercloud", lenient)


PARQUET = DIRECTORY / "log.parquet"


def parquet(facts: bytes, **columns: object) -> Path:
    """A log of two jobs with this metadata, and perhaps with other columns."""
    table = pa.table({"submit_s": [0.0, 5.0], "run_s": [3.0, 4.0], "user": [0, 1], **columns})
    pq.write_table(table.replace_schema_metadata({b"clustertwin.jobs": facts}), PARQUET)
    return PARQUET


@fuzzed("parquet_facts")
def test_the_metadata_of_a_parquet_log(content: bytes) -> None:
    """A text that is not JSON, or a machine of another type, was a foreign error."""
    jobs = attempt(lambda: formats.read(parquet(content), format="parquet"), InputError)
    if jobs is not None:
        assert np.isfinite(jobs.epoch_s)
        ZoneInfo(jobs.timezone)


@fuzzed("parquet")
def test_a_parquet_log(content: bytes) -> None:
    is_read_or_refused(content, "parquet", lenient=True)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"user": pa.array([[1], [2]])}, "column 'user' holds list"),
        ({"user": pa.array(["a", "b"]).dictionary_encode()}, "column 'user' holds dictionary"),
        ({"user": pa.array([{"a": {"b": [1]}}, None])}, "column 'user' holds struct"),
        ({"user": pa.array([None, None])}, "column 'user' holds null"),
        ({"run_s": pa.array([b"1", b"2"])}, "column 'run_s' holds binary"),
    ],
)
def test_a_parquet_column_of_another_type_is_refused(columns, reason) -> None:
    with pytest.raises(TraceError, match=reason):
        formats.read(parquet(b"{}", **columns), format="parquet")


def test_a_code_without_a_name_is_a_fault_and_not_an_error_of_the_next_step(tmp_path) -> None:
    """`twin trace convert` and `anonymise` ended in a traceback."""
    facts = b'{"names": {"user": ["ann"]}}'
    with pytest.raises(TraceError, match=":2: user 1 has no name; the log names 1"):
        formats.read(parquet(facts), format="parquet")
    jobs = formats.read(parquet(facts), format="parquet", lenient=True)
    assert jobs.user.tolist() == [0, -1]
    assert formats.write(jobs, tmp_path / "log.sacct") == 2


def test_a_small_parquet_file_of_very_many_equal_rows_is_refused_before_it_is_read(tmp_path) -> None:
    """Two kilobytes become gigabytes: equal values are stored once."""
    rows = 3_000_000
    zeros = pa.array(np.zeros(rows))
    pq.write_table(pa.table({"submit_s": zeros, "run_s": zeros}), tmp_path / "log", compression="zstd")
    with pytest.raises(TraceError, match=r"3,000,000 rows in [\d,]+ bytes: no job log is so regular"):
        formats.read(tmp_path / "log", format="parquet")


def test_a_column_of_texts_is_refused_before_it_is_read(tmp_path, monkeypatch) -> None:
    """A file of kilobytes can repeat a text of a megabyte in each of its rows."""
    pq.write_table(pa.table({"submit_s": [0.0], "run_s": ["x" * 1000]}), tmp_path / "log")
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *args, **options: pytest.fail("it was read"))
    with pytest.raises(TraceError, match="'run_s' holds string, not numbers"):
        formats.read(tmp_path / "log", format="parquet")


def test_columns_that_no_job_log_has_are_not_read(tmp_path, monkeypatch) -> None:
    table = pa.table({"submit_s": [0.0], "run_s": [1.0], "payload": [b"x" * 1000]})
    pq.write_table(table, tmp_path / "log")
    read, asked = pq.ParquetFile.read, []
    monkeypatch.setattr(pq.ParquetFile, "read", lambda self, columns: asked.extend(columns) or read(self, columns))
    assert len(formats.read(tmp_path / "log", format="parquet")) == 1
    assert asked == ["submit_s", "run_s"]


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


@pytest.mark.parametrize("format", ["swf", "sacct", "alcf"])
@pytest.mark.parametrize("lenient", [True, False])
def test_a_file_of_faults_is_refused_before_they_fill_the_memory(format, lenient, tmp_path, monkeypatch) -> None:
    """Nine kilobytes of gzip hold a million faulty lines, which took 200 MB."""
    monkeypatch.setattr(findings, "MOST_FINDINGS", 1000)
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(seeds(format)[0] + b"x\n" * 5000))
    with pytest.raises(TraceError, match="more than 1,000 faults; the last: "):
        formats.read(path, lenient=lenient, format=format)


@pytest.mark.parametrize("format", ["sacct", "alcf"])
def test_lines_of_another_length_are_refused_before_they_fill_the_memory(format, tmp_path, monkeypatch) -> None:
    """They were kept to the end of the file: a kilobyte of gzip with 500,000 of them took 200 MB."""
    monkeypatch.setattr(delimited, "MOST_MISFIT_BYTES", 100_000)
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(seeds(format)[0] + b"x\n" * 5000))
    with pytest.raises(TraceError, match=r"\d+ fields, but the first line has \d+ \(and \d+ more such lines\)"):
        formats.read(path, lenient=True, format=format)


def test_files_that_each_include_the_next_twice_are_refused_soon(tmp_path) -> None:
    """The last of twenty was read a million times: the depth of includes was limited, and their number was not."""
    for number in range(15):
        (tmp_path / f"{number}.conf").write_text(f"Include {number + 1}.conf\n" * 2)
    (tmp_path / "15.conf").write_text("\n")
    with pytest.raises(SiteError, match=r"more than 1000 files are included"):
        read_site(tmp_path / "0.conf")


def test_a_column_that_occurs_twice_is_refused_by_name(tmp_path) -> None:
    """A find of the fuzzer: `sacct --format=JobID,ReqCPUS,ReqCPUS` was a KeyError."""
    header, *lines = seeds("sacct")[0].splitlines()
    path = tmp_path / "log"
    path.write_bytes(b"\n".join([header + b"|ReqCPUS", *(line + b"|77" for line in lines)]) + b"\n")
    with pytest.raises(TraceError, match="log:1: the column ReqCPUS appears twice"):
        formats.read_report(path, lenient=True, format="sacct")
