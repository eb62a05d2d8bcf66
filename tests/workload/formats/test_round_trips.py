"""A written log reads back equal, except for what its format cannot express; files are replaced atomically."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clustertwin.core.errors import OutputError, SettingsError, TraceError
from clustertwin.workload.formats import FORMATS, read, read_report, sniff, write
from clustertwin.workload.jobs import COLUMNS, Jobs, Machine

#: Columns that a format cannot express (SWF has one kind of processor; Slurm has whole seconds and minutes).
LOSES = {
    "parquet": set(),
    "swf": {"nodes", "gpus", "memory_bytes"},
    "alcf": {"queue", "memory_bytes"},
    "sacct": {"memory_bytes"},
    "supercloud": {"memory_bytes"},
}
SUFFIX = {"parquet": ".parquet", "swf": ".swf", "alcf": ".csv", "sacct": ".sacct", "supercloud": ".csv"}
WHOLE_SECONDS = ("sacct", "supercloud")


@st.composite
def logs(draw: st.DrawFn, whole_seconds: bool = False) -> Jobs:
    n = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=n, max_size=n))

    second = st.integers(0, 10**6).map(float) if whole_seconds else st.floats(0, 1e7).map(lambda value: round(value, 3))
    return Jobs.build(
        np.cumsum(column(second)) * 1.0,
        column(second),
        id=draw(st.lists(st.integers(1, 10**9), min_size=n, max_size=n, unique=True)),
        wait_s=column(second),
        request_s=np.array(column(st.integers(1, 10**4))) * 60,
        nodes=column(st.integers(1, 5000)),
        cpus=column(st.integers(1, 10**6)),
        gpus=column(st.integers(0, 64)),
        memory_bytes=np.array(column(st.integers(1, 2000))) * 2.0**30,
        user=column(st.integers(0, 2)),
        group=column(st.integers(0, 1)),
        queue=column(st.integers(0, 1)),
        status=column(st.sampled_from([0, 1, 5])),
        epoch_s=1_700_000_000.0,
        machine=Machine(5000, 200, name="Twin"),
        names={"user": ("ann", "bob", "eve"), "group": ("a", "b"), "queue": ("p", "q")},
        timezone="Europe/Rome",
    )


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=settings.default.max_examples // 4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_a_log_survives_a_round_trip(format: str, draw: st.DataObject, tmp_path: Path) -> None:
    jobs = draw.draw(logs(whole_seconds=format in WHOLE_SECONDS))
    path = tmp_path / f"log{SUFFIX[format]}"
    assert write(jobs, path, force=True, format=format) == len(jobs)
    assert sniff(path) == format
    again = read(path, timezone="Europe/Rome")
    for name in COLUMNS:
        if name in LOSES[format] or name in ("user", "group", "queue", "submit_s"):
            continue
        assert np.array_equal(getattr(jobs, name), getattr(again, name)), name
    assert np.allclose(jobs.epoch_s + jobs.submit_s, again.epoch_s + again.submit_s, rtol=0, atol=1e-6)
    for name in {"user", "group", "queue"} - LOSES[format]:
        assert words(jobs, name) == words(again, name) or format == "swf", name


def words(jobs: Jobs, column: str) -> list[str]:
    names = jobs.names.get(column, ())
    return [names[code] if names else str(code) for code in getattr(jobs, column)]


def test_parquet_keeps_everything(tmp_path):
    jobs = Jobs.build([0.0, 1.25], [3.0, 4.0], epoch_s=7.0, machine=Machine(4, 8, 1, "Twin"), header=("; a",),
                      names={"user": ("ann",)}, user=[0, -1], timezone="Europe/Rome")  # fmt: skip
    write(jobs, tmp_path / "log.parquet")
    again = read(tmp_path / "log.parquet")
    assert all(np.array_equal(getattr(jobs, name), getattr(again, name)) for name in COLUMNS)
    assert (again.machine, again.names, again.header) == (jobs.machine, jobs.names, jobs.header)
    assert (again.epoch_s, again.timezone) == (7.0, "Europe/Rome")


@pytest.mark.parametrize("suffix", [".swf", ".csv", ".sacct"])
def test_gzip_is_written_by_suffix_and_read_by_content(tmp_path, suffix):
    jobs = Jobs.build([0.0], [3.0], cpus=[2], nodes=[1], epoch_s=1_700_000_000.0)
    write(jobs, tmp_path / f"log{suffix}.gz")
    assert (tmp_path / f"log{suffix}.gz").read_bytes()[:2] == b"\x1f\x8b"
    (tmp_path / f"log{suffix}.gz").rename(tmp_path / "misnamed.txt")
    assert read(tmp_path / "misnamed.txt").run_s.tolist() == [3]


def test_a_damaged_gzip_file_is_refused(tmp_path):
    packed = gzip.compress(b"1 0 0 60 4 -1 -1 4 3600 -1 1 7 2 -1 3 -1 -1 -1\n" * 500)
    (tmp_path / "log.swf.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceError, match="gzip data is damaged"):
        read(tmp_path / "log.swf.gz")


def test_nothing_is_overwritten_without_force(tmp_path):
    jobs, path = Jobs.build([0.0], [3.0], cpus=[1]), tmp_path / "log.swf"
    path.write_text("precious")
    with pytest.raises(OutputError, match=r"log\.swf already exists; use --force to overwrite it"):
        write(jobs, path)
    assert path.read_text() == "precious"
    write(jobs, path, force=True)
    assert read(path).run_s.tolist() == [3]


def test_a_failed_write_leaves_no_file(tmp_path):
    def failing():
        yield Jobs.build([0.0], [3.0], cpus=[1])
        raise RuntimeError("the generator failed")

    with pytest.raises(RuntimeError):
        write(failing(), tmp_path / "log.swf")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(OutputError, match="No such file"):
        write(Jobs.build([0.0], [3.0], cpus=[1]), tmp_path / "no" / "log.swf")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("JobID,User,Submit\n1,ann,100\n", "this sacct log are separated by ','; replace it by '|', or print it with"),
        ("JobID\tUser\tSubmit\n1\tann\t100\n", r"separated by '\\t'"),
        (
            "       JobID    JobName\n------------ ----------\n1   job\n",
            "for people, .* print the log with --parsable2",
        ),
        ("submit,runtime,cores\n1,2,3\n", r"ct\.Jobs\.from_pandas\(frame\)"),
    ],
)
def test_a_log_that_is_nearly_known_gets_the_way_to_a_known_one(tmp_path, text, hint):
    (tmp_path / "log.txt").write_text(text)
    with pytest.raises(TraceError, match=hint):
        read(tmp_path / "log.txt")


def test_files_settings_and_zones_that_cannot_be_used_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match=r"matches no known job log format .*`twin trace convert --from FORMAT`"):
        read(tmp_path / "a.csv")
    with pytest.raises(TraceError, match="No such file"):
        read(tmp_path / "b.swf")
    with pytest.raises(SettingsError, match="unknown format 'xml'"):
        read(tmp_path / "a.csv", format="xml")
    with pytest.raises(SettingsError, match=r"no format is written with the suffix \.xml"):
        write(Jobs.build([0.0], [1.0]), tmp_path / "a.xml")
    with pytest.raises(SettingsError, match="unknown time zone"):
        read(tmp_path / "a.csv", format="alcf", timezone="Mars/Base")


def test_one_job_is_a_log(tmp_path):
    write(Jobs.build([0.0], [3.0], cpus=[1]), tmp_path / "log.swf")
    assert len(read_report(tmp_path / "log.swf").jobs) == 1
