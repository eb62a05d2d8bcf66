"""A raw run becomes the trace that the exporter's series would give."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.channels import CPU, JOB, NODE
from clustertwin.core.errors import RecordingError
from clustertwin.telemetry.campaign.zoo.raw_run import RawRun, RawWriter
from clustertwin.telemetry.campaign.zoo.raw_trace import SERIES, series_values, spans_of, trace_of
from clustertwin.telemetry.campaign.zoo.zoo_card import write_card
from clustertwin.telemetry.campaign.zoo.zoo_data import load_zoo, summary_of, zoo_run_of
from clustertwin.telemetry.ingest.counters import MODES

START_S, SECONDS = 1_800_000_000, 20


def _labels(cpu_count=1, **more):
    fault = {"fault": "throttled", "cause": "throttled", "onset_s": START_S + 10.0, "end_s": START_S + 15.0}
    return {
        "program": "lammps",
        "number": 2,
        "kind": "MPI",
        "version": "1",
        "cpus": [0],
        "cpu_count": cpu_count,
        "kernel": "6.1",
        "units": {"ticks_per_s": 100},
        "imposed": [fault],
        "healthy_cpu_s": 10.0,
        "job_s": 9.0,
        "foreign_s": 0.3,
        **more,
    }


def _samples():
    """A thread that is 75 % user and 25 % idle, with half of its memory in use."""
    for second in range(SECONDS + 1):
        modes = {f"stat/cpu0/{mode}": 0 for mode in MODES}
        modes |= {"stat/cpu0/user": 75 * second, "stat/cpu0/idle": 25 * second}
        node = {"meminfo/MemTotal": 1000, "meminfo/MemAvailable": 500, "pressure/cpu/some": 100_000 * second}
        job = {
            "job/v2.cpu.stat/user_usec": 450_000 * second,
            "job/v2.cpu.stat/system_usec": 150_000 * second,
            "job/v2.io.pressure/some": 200_000 * second,
            "job/cpu.stat/throttled_time": 300_000_000 * second,
            "job/memory.stat/total_rss": 250,
            "job/memory.limit_in_bytes": 1000,
            "job/memory.stat/total_pgmajfault": 100 * second,
        }
        yield START_S + second, modes | node | job


def _run(**labels):
    times, samples = zip(*_samples(), strict=True)
    values = {name: np.array([sample[name] for sample in samples], float) for name in samples[0]}
    return RawRun(_labels(**labels), np.array(times, float), values)


def test_the_trace_has_known_ratios():
    trace = trace_of(_run())
    assert trace.values.shape == (1, SECONDS, len(CPU))
    assert trace.valid.all()
    np.testing.assert_allclose(trace.values[0], np.tile([0.75, 0, 0, 0.25], (SECONDS, 1)), atol=1e-6)
    node = dict(zip(NODE.names, trace.node_channels.values.T, strict=True))
    np.testing.assert_allclose(node["memory_used"], 0.5)
    np.testing.assert_allclose(node["cpu_pressure"], 0.1, atol=1e-6)
    assert np.isnan(node["io_pressure"]).all()  # not recorded


def test_the_job_has_the_channels_of_its_group():
    channels = trace_of(_run(cpu_count=2)).job_channels
    assert channels.jobs == ("lammps-2",)
    job = dict(zip(channels.schema.names, channels.values[0].T, strict=True))
    for name, expected in {
        "job_cpu": 0.6,
        "job_system": 0.25,
        "job_io_pressure": 0.2,
        "job_throttled": 0.3,
        "job_memory": 0.25,
        "job_major_faults": 0.5,
    }.items():
        np.testing.assert_allclose(job[name], expected, atol=1e-5, err_msg=name)


def test_channels_of_a_node_that_other_work_shares_are_unknown():
    assert np.isnan(trace_of(_run(cpu_count=2)).node_channels.values).all()
    kept = trace_of(_run(cpu_count=2), keep_shared=True).node_channels.values
    np.testing.assert_allclose(kept[:, NODE.index("memory_used")], 0.5)


def test_every_part_of_a_run_has_one_label():
    spans = spans_of(_run())
    assert [(span.anomaly, span.start_s - START_S, span.end_s - START_S) for span in spans] == [
        ("", 0, 10),
        ("throttled", 10, 15),
        ("", 15, 20),
    ]
    assert {(span.job, span.job_type) for span in spans} == {("lammps-2", "lammps")}


def test_a_fault_that_could_not_be_imposed_has_no_label():
    failed = {"fault": "swapping", "cause": "swapping", "onset_s": START_S + 5.0, "end_s": START_S + 5.0, "error": "x"}
    run = _run(imposed=[failed])
    assert [span.anomaly for span in spans_of(run)] == [""]
    assert zoo_run_of(run).phases == ()


def test_every_series_of_the_channels_is_mapped():
    series = {
        name
        for channel in (*NODE.channels, *JOB.channels)
        if channel.derivation
        for operand in channel.derivation.series.get("twin", ())
        for name in operand
    }
    assert series <= SERIES.keys() | {"twin_job_cpu_allocated"}


def test_series_add_up_what_matches():
    run = RawRun({}, np.arange(2.0), {"vmstat/pswpin": np.array([1.0, 2]), "vmstat/pswpout": np.array([10.0, 20])})
    assert list(series_values(run, "twin_swap_pages_total")) == [11, 22]
    assert np.isnan(series_values(run, "twin_unknown_total")).all()


def test_a_counter_that_appears_later_was_zero_before():
    names = ("diskstats/vda/sectors_read", "diskstats/vdb/sectors_read")
    first, second = np.array([4.0, 5, 6, 7]), np.array([np.nan, np.nan, 1, np.nan])
    run = RawRun({}, np.arange(4.0), dict(zip(names, (first, second), strict=True)))
    np.testing.assert_array_equal(series_values(run, "twin_disk_read_bytes_total"), [2048, 2560, 3584, np.nan])


def test_the_data_package_is_loaded_by_program(tmp_path):
    for program in ("lammps", "sort-pipeline"):
        writer = RawWriter(tmp_path / f"{program}-2.jsonl.xz", _labels() | {"program": program})
        for time_s, sample in _samples():
            writer.add(time_s, sample)
        writer.finish({})
    runs = list(load_zoo(tmp_path))
    assert [run.name for run in runs] == ["lammps-2", "sort-pipeline-2"]
    assert [phase.fault for phase in runs[0].phases] == ["throttled"]
    assert runs[0].foreign == pytest.approx(0.03)
    assert runs[0].is_disturbed
    assert [run.program for run in load_zoo(tmp_path, ["sort-pipeline"])] == ["sort-pipeline"]
    assert summary_of(runs[0])["faults"] == "throttled"
    card = write_card(tmp_path).read_text()
    assert "2 runs of 2 programs" in card
    assert "| lammps-2 | MPI | 1 | 21 | throttled | 0.900 | 0 | 0.030\\* |" in card
    assert "throttled 2, misbound 0" in card


def test_what_people_wrote_at_the_end_of_the_card_stays(tmp_path):
    writer = RawWriter(tmp_path / "lammps-2.jsonl.xz", _labels())
    for time_s, sample in _samples():
        writer.add(time_s, sample)
    writer.finish({})
    path = write_card(tmp_path)
    before = path.read_text()
    path.write_text(before.replace("1 runs", "0 runs") + "\n## How these runs were made\n\nBy hand.\n")
    assert write_card(tmp_path).read_text() == before + "\n## How these runs were made\n\nBy hand.\n"


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(RecordingError, match="holds no run"):
        list(load_zoo(tmp_path))
