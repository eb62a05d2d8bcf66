"""Requests of remote write: known bytes give known series, and every limit is checked before it is spent."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from tests.pushed import STALE, label, literal_block, message, sample, series, varint

from clustertwin.telemetry.ingest.pushed.write_request import (
    LONG_LABEL,
    MANY_LABELS,
    NAMELESS,
    SCATTERED,
    SOUND,
    WriteError,
    WriteLimits,
    declared_length,
    decode,
    parse_labels,
    parse_write_request,
)

UP = {"__name__": "up", "instance": "n1:9100"}
#: `up{instance="n1:9100"} 1` at 1.5 s: the series, two labels, one sample.
KNOWN = bytes.fromhex(
    "0a33" "0a0e0a085f5f6e616d655f5f12027570" "0a130a08696e7374616e636512076e313a39313030"
    "120c09000000000000f03f10dc0b"
)  # fmt: skip


@pytest.mark.medium
def test_known_bytes_are_one_series_with_one_sample() -> None:
    assert series(UP, [(1500, 1.0)]) == KNOWN
    request = parse_write_request(KNOWN)
    assert parse_labels(request.labels(0)) == UP
    assert request.times_ms.tolist() == [1500]
    assert request.bits.view(np.float64).tolist() == [1.0]


def test_requests_of_googles_protobuf_library_are_read() -> None:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="write.proto", package="p", syntax="proto3")
    for name, fields in {
        "Label": (("name", 9, 1, ""), ("value", 9, 1, "")),
        "Sample": (("value", 1, 1, ""), ("timestamp", 3, 1, "")),
        "TimeSeries": (("labels", 11, 3, ".p.Label"), ("samples", 11, 3, ".p.Sample")),
        "WriteRequest": (("timeseries", 11, 3, ".p.TimeSeries"),),
    }.items():
        described = file.message_type.add(name=name)
        for number, (field, kind, count, of) in enumerate(fields, 1):
            described.field.append(kinds(name=field, number=number, type=kind, label=count, type_name=of or None))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    request = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.WriteRequest"))()
    rng = np.random.default_rng(3)
    for i in range(50):
        one = request.timeseries.add()
        for name, value in {"__name__": "up", "instance": f"n{i}:é", "long": "x" * int(rng.integers(300))}.items():
            one.labels.add(name=name, value=value)
        for _ in range(int(rng.integers(4))):
            one.samples.add(value=float(rng.normal()), timestamp=int(rng.integers(-(2**62), 2**62)))
    parsed = parse_write_request(request.SerializeToString())
    for i, one in enumerate(request.timeseries):
        mine = parsed.series_of == i
        assert parse_labels(parsed.labels(i)) == {pair.name: pair.value for pair in one.labels}
        assert parsed.times_ms[mine].tolist() == [each.timestamp for each in one.samples]
        assert parsed.bits.view(np.float64)[mine].tolist() == [each.value for each in one.samples]


def test_samples_know_their_series_and_a_stale_marker_keeps_its_bits() -> None:
    request = parse_write_request(series(UP, [(1, 1.0), (2, STALE)]) + series({"__name__": "x"}, [(-3, 4.0)]))
    assert request.series_of.tolist() == [0, 0, 1]
    assert request.times_ms.tolist() == [1, 2, -3]
    assert request.bits[1] == 0x7FF0000000000002


def test_fields_of_later_versions_and_metadata_are_skipped() -> None:
    later = varint(15 << 3) + varint(7) + message(3, b"metadata") + varint(9 << 3 | 5) + b"1234"
    exemplar = message(
        1, label("__name__", "up") + sample(5, 2.0) + message(3, b"exemplar") + varint(9 << 3 | 1) + b"8" * 8
    )
    request = parse_write_request(later + exemplar + later)
    assert request.times_ms.tolist() == [5]
    assert request.problem.tolist() == [SOUND]


def test_missing_numbers_are_zero_as_in_proto3() -> None:
    request = parse_write_request(message(1, label("__name__", "up") + message(2, b"")))
    assert (request.times_ms.tolist(), request.bits.tolist()) == ([0], [0])


@pytest.mark.parametrize("cut", range(1, len(KNOWN)))
def test_a_request_that_is_cut_is_damaged(cut: int) -> None:
    with pytest.raises(WriteError, match="not a WriteRequest"):
        parse_write_request(KNOWN[:cut])


@pytest.mark.parametrize(
    "damaged",
    [
        b"\x0a" + b"\xff" * 9 + b"\x01",  # a length of 2^64 - 1
        b"\x0a\x80\x80\x80\x80\x08",  # of 2^31
        b"\xff" * 11,  # a number without an end
        b"\x03\x04",  # a field 0, and groups
        b"\x0b\x0c",
        b"\x08\x01",  # series that are a number
        message(1, b"\x08\x01"),  # labels that are a number
        message(1, b"\x12\x02\x08\x01"),  # a value that is no double
        message(1, b"\x12\x05\x15\0\0\0\0"),  # a time that is no varint
        message(1, message(1, b"\x08\x01")),  # the name of a label that is a number
    ],
)
def test_other_bytes_are_damaged(damaged: bytes) -> None:
    with pytest.raises(WriteError, match="not a WriteRequest") as error:
        parse_write_request(damaged)
    assert error.value.status == 400


LIMITS = WriteLimits(labels=3, label_bytes=20, series=3, samples=4)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (label("instance", "n1"), NAMELESS),
        (label("__name__", "up") + b"".join(label(str(i), "") for i in range(3)), MANY_LABELS),
        (label("__name__", "x" * 21), LONG_LABEL),
        (label("__name__", "up") + label("y" * 21, ""), LONG_LABEL),
        (label("__name__", "up") + sample(1, 1.0) + label("instance", "n1"), SCATTERED),
        (label("__name__", "x" * 20), SOUND),
    ],
)
def test_a_series_with_unusable_labels_is_marked_and_the_next_is_sound(content: bytes, problem: int) -> None:
    request = parse_write_request(message(1, content) + series(UP, [(1, 1.0)]), LIMITS)
    assert request.problem.tolist() == [problem, SOUND]


def test_too_many_series_or_samples_are_refused_as_too_large() -> None:
    for lie in (series(UP, []) * 4, series(UP, [(1, 1.0)] * 5)):
        with pytest.raises(WriteError, match="which is the limit of a request") as error:
            parse_write_request(lie, LIMITS)
        assert error.value.status == 413


@pytest.mark.parametrize("text", [label("a", "1") * 2, message(1, message(1, b"\xff"))])
def test_labels_that_are_twice_there_or_not_text_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"twice|decode"):
        parse_labels(text)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "not a snappy block"),
        (b"\xff" * 6, 400, "not a snappy block"),
        (varint(33 << 20) + b"x", 413, "34603008 bytes after decoding; the limit is 33554432"),
        (varint(32 << 20) + b"x" * 100, 400, "104 bytes do not expand to 33554432"),
        (b"x" * (4 << 20) + b"x", 413, "4194305 bytes; the limit is 4194304"),
    ],
)
def test_a_block_over_a_limit_is_refused_before_it_is_decoded(body: bytes, status: int, reason: str) -> None:
    tracemalloc.start()
    with pytest.raises(WriteError, match=reason) as error:
        decode(body)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert error.value.status == status


def test_a_block_is_decoded() -> None:
    pytest.importorskip("cramjam", reason="pip install 'clustertwin[remote-write]'")
    data = series(UP, [(1, 1.0)]) * 20
    assert decode(literal_block(data)) == data
    assert declared_length(literal_block(data)) == len(data)
    assert decode(b"\0") == b""


@pytest.mark.parametrize(
    "body", [b"\x05\x00x", b"\x05\xf0\xff\xff\xff\xff", b"\x05\x01\xff", b"\x02\x10hello", b"\xff\x0f" * 300]
)
def test_a_damaged_block_is_refused_with_one_sentence(body: bytes) -> None:
    pytest.importorskip("cramjam", reason="pip install 'clustertwin[remote-write]'")
    with pytest.raises(WriteError, match="not a snappy block"):
        decode(body)
