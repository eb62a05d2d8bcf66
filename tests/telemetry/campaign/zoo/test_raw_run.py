"""A raw run is read as it was written, and a damaged one is refused."""

from __future__ import annotations

import lzma
import os
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import RecordingError
from clustertwin.telemetry.campaign.zoo.raw_run import (
    RawWriter,
    is_being_recorded,
    lines_of,
    parse_raw_run,
    read_raw_run,
)

SAMPLES = st.lists(st.dictionaries(st.sampled_from("abcde"), st.integers(-(2**50), 2**50)), max_size=8)


@pytest.mark.medium
@given(SAMPLES)
def test_what_is_written_is_read(tmp_path_factory, samples):
    path = tmp_path_factory.mktemp("run") / "a-0.jsonl.xz"
    writer = RawWriter(path, {"program": "a"})
    for second, sample in enumerate(samples):
        writer.add(second + 0.25, sample)
    writer.finish({"imposed": []})
    run = read_raw_run(path)
    assert run.labels == {"program": "a", "imposed": []}
    assert list(run.times_s) == [second + 0.25 for second in range(len(samples))]
    for name in {name for sample in samples for name in sample}:
        expected = np.array([sample.get(name, np.nan) for sample in samples], float)
        np.testing.assert_array_equal(run.values[name], expected)
    assert not lines_of(path).exists()


def test_only_changes_take_space(tmp_path):
    writer = RawWriter(tmp_path / "a-0.jsonl.xz", {})
    for second in range(3):
        writer.add(second, {"constant": 7, "counter": second})
    lines = lines_of(tmp_path / "a-0.jsonl.xz").read_bytes().splitlines()
    assert lines[1:] == [b'["+","constant","counter"]', b"[0,0,7,1,0]", b"[1000,1,1]", b"[2000,1,1]"]
    writer.abandon()
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_killed_is_not_complete():
    with pytest.raises(RecordingError, match="not complete"):
        parse_raw_run(b'{"program": "a"}\n["+","x"]\n[0,0,1]\n')


@pytest.mark.parametrize("line", [b"[0,5]", b'["-",9]', b"{", b"[]", b'["x"]', b"[0,7,1]", b"[0,-1,1]", b"[0,0.5,1]"])
def test_a_damaged_line_is_named(line):
    with pytest.raises(RecordingError, match=r"run:2: "):
        parse_raw_run(b"{}\n" + line + b"\n{}", "run")


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    path = tmp_path / "a-0.jsonl.xz"
    path.write_bytes(lzma.compress(b'{}\n["+","x"]\n{}\n')[:-10])
    with pytest.raises(RecordingError, match="cut off"):
        read_raw_run(path)


def test_an_unpacked_file_has_a_limit(tmp_path, monkeypatch):
    path = tmp_path / "a-0.jsonl.xz"
    path.write_bytes(lzma.compress(b"{}\n" * 1000))
    monkeypatch.setattr("clustertwin.telemetry.campaign.zoo.raw_run._MOST_BYTES", 100)
    with pytest.raises(RecordingError, match="more than"):
        read_raw_run(path)


def test_a_file_that_asks_for_gigabytes_of_memory_is_refused(tmp_path):
    path = tmp_path / "a-0.jsonl.xz"
    packed = bytearray(lzma.compress(b"{}\n{}\n", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]))
    block = slice(12, 12 + 4 * (packed[12] + 1))
    packed[block.start + 4] = 40  # the largest dictionary: 4 GB
    packed[block.stop - 4 : block.stop] = zlib.crc32(packed[block.start : block.stop - 4]).to_bytes(4, "little")
    path.write_bytes(packed)
    with pytest.raises(RecordingError, match="Memory usage limit"):
        read_raw_run(path)


def test_short_lines_that_repeat_many_values_are_refused(monkeypatch):
    monkeypatch.setattr("clustertwin.telemetry.campaign.zoo.raw_run._MOST_VALUES", 1000)
    names = b"[" + b",".join(b'"%d"' % i for i in range(100)) + b"]"
    with pytest.raises(RecordingError, match="more than 1,000 values"):
        parse_raw_run(b'{}\n["+",' + names[1:] + b"\n" + b"[1]\n" * 50 + b"{}")


def test_a_pipe_is_no_run(tmp_path):
    os.mkfifo(tmp_path / "a-0.jsonl.xz")
    with pytest.raises(RecordingError, match="not a regular file"):
        read_raw_run(tmp_path / "a-0.jsonl.xz")


def test_two_recorders_cannot_record_the_same_run(tmp_path):
    path = tmp_path / "a-0.jsonl.xz"
    assert not is_being_recorded(path)
    writer = RawWriter(path, {})
    assert is_being_recorded(path)
    with pytest.raises(RecordingError, match="another process"):
        RawWriter(path, {})
    writer.abandon()
    assert not is_being_recorded(path)


def test_the_lines_of_a_killed_recorder_are_replaced(tmp_path):
    path = tmp_path / "a-0.jsonl.xz"
    lines_of(path).write_text('{"old": 1}\n')
    writer = RawWriter(path, {"new": 1})
    writer.finish({})
    assert read_raw_run(path).labels == {"new": 1}
