"""A request of Prometheus' remote write 1.0: snappy block of a protobuf WriteRequest -> series with their samples.

    WriteRequest   timeseries = 1 (repeated)
    TimeSeries     labels = 1 (repeated), samples = 2 (repeated)
    Label          name = 1, value = 2
    Sample         value = 1 (double), timestamp = 2 (int64, milliseconds)

Every other field is skipped. The length that a block declares is checked before a byte of it is decoded, and the scan,
which is compiled, allocates nothing. A series whose labels are over a limit is marked and leaves the others usable; a
damaged message, or too many series or samples, refuse the whole request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import borrowing
from clustertwin.core.errors import SourceError
from clustertwin.core.extras import require

#: Nothing is as small as this beside what it expands to: a copy of 64 bytes takes 3 bytes in a snappy block.
_MOST_EXPANSION = 22
_NAME = np.frombuffer(b"__name__", np.uint8)

#: What a scan can find wrong with the whole request …
_WHOLE, _DAMAGED, _SERIES, _SAMPLES = range(4)
#: … and with the labels of one series.
SOUND, SCATTERED, MANY_LABELS, LONG_LABEL, NAMELESS = range(5)
LABEL_PROBLEMS = {
    SCATTERED: "labels that do not come before the samples",
    MANY_LABELS: "more labels than the limit",
    LONG_LABEL: "a longer label than the limit",
    NAMELESS: "no __name__",
}


class WriteError(SourceError):
    """A request that cannot be used, with its HTTP status. Senders do not repeat a request after a 4xx."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """The limits of a request, each checked before it is spent. Prometheus sends 500 to 10,000 samples at once."""

    body_bytes: int = 4 << 20
    decoded_bytes: int = 32 << 20
    series: int = 200_000
    samples: int = 500_000
    labels: int = 64  # of a series, as in `AnswerLimits`
    label_bytes: int = 4096


@dataclass(frozen=True, slots=True)
class WriteSeries:
    """The series of a request."""

    data: NDArray[np.uint8]  # the decoded request
    places: NDArray[np.int64]  # (series, 4) begin and end of its labels, begin and end of its metric name
    problem: NDArray[np.int64]  # (series,) SOUND, or what is wrong with its labels
    series_of: NDArray[np.int64]  # (sample,)
    times_ms: NDArray[np.int64]  # (sample,)
    bits: NDArray[np.uint64]  # (sample,) the value; a stale marker is a NaN of its own

    def labels(self, series: int) -> bytes:
        begin, end = self.places[series, :2]
        return self.data[begin:end].tobytes()


def declared_length(body: bytes, limits: WriteLimits = WriteLimits()) -> int:
    """The length of the decoded block, as its first bytes declare it; WriteError if it is over the limits."""
    length = 0
    for at, byte in enumerate(body[:5]):
        length |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            if length > limits.decoded_bytes:
                raise WriteError(f"{length} bytes after decoding; the limit is {limits.decoded_bytes}", 413)
            if length > _MOST_EXPANSION * len(body):
                raise WriteError(f"the body cannot be a snappy block: {len(body)} bytes do not expand to {length}")
            return length
    raise WriteError("the body is not a snappy block")


def decode(body: bytes, limits: WriteLimits = WriteLimits()) -> bytes:
    """The decoded block."""
    if len(body) > limits.body_bytes:
        raise WriteError(f"{len(body)} bytes; the limit is {limits.body_bytes}", 413)
    length = declared_length(body, limits)
    if not length:
        return b""
    cramjam: Any = require("cramjam", "remote-write")
    decoded = bytearray(length)
    try:
        written = cramjam.snappy.decompress_raw_into(body, decoded)
    except Exception as error:  # its errors have no common ancestor of their own
        raise WriteError(f"the body is not a snappy block: {' '.join(str(error).split())[:100]}") from None
    if written != length:
        raise WriteError(f"the body is not a snappy block: {written} bytes, and it declares {length}")
    return bytes(decoded)


def parse_write_request(decoded: bytes, limits: WriteLimits = WriteLimits()) -> WriteSeries:
    """The series of a decoded request; WriteError if it is damaged or over a limit."""
    data = np.frombuffer(decoded, np.uint8)
    # A field takes at least two bytes. Memory that is not written is not used.
    series, samples = min(limits.series, len(data) // 2), min(limits.samples, len(data) // 2)
    places, problem = np.empty((series, 4), np.int64), np.empty(series, np.int64)
    series_of, times_ms, bits = np.empty(samples, np.int64), np.empty(samples, np.int64), np.empty(samples, np.uint64)
    most = (limits.labels, limits.label_bytes)
    code, series, samples = _scan(data, most, np.empty(2, np.int64), places, problem, series_of, times_ms, bits)
    if code == _SERIES:
        raise WriteError(f"more than {limits.series} series, which is the limit of a request", 413)
    if code == _SAMPLES:
        raise WriteError(f"more than {limits.samples} samples, which is the limit of a request", 413)
    if code != _WHOLE:
        raise WriteError("the decoded body is not a WriteRequest of remote write 1.0")
    return WriteSeries(data, places[:series], problem[:series], series_of[:samples], times_ms[:samples], bits[:samples])


def parse_labels(text: bytes) -> dict[str, str]:
    """The labels of one series that `_scan` has found sound; ValueError if they are not text, or one is there twice."""
    labels: dict[str, str] = {}
    data = np.frombuffer(text, np.uint8)
    at = 0
    while at < len(text):
        _, _, inside, end = _field(data, at, len(text))
        at, parts = int(end), {1: b"", 2: b""}
        while inside < end:
            number, _, begin, inside = _field(data, inside, end)
            if number in parts:
                parts[int(number)] = text[begin:inside]
        name = parts[1].decode()
        if name in labels:
            raise ValueError(f"the label {name[:60]!r} twice")
        labels[name] = parts[2].decode()
    return labels


@borrowing
def _varint(data, at, end):  # type: ignore[no-untyped-def]
    """The number at a place, and the place after it; -1 if it has no end or more than 64 bits."""
    if at < end and data[at] < 0x80:  # nearly all of them
        return np.uint64(data[at]), at + 1
    value = np.uint64(0)
    for k in range(10):
        if at >= end:
            return value, -1
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << np.uint64(7 * k)
        if byte < np.uint64(0x80):
            return value, at if k < 9 or byte <= np.uint64(1) else -1
    return value, -1


@borrowing
def _field(data, at, end):  # type: ignore[no-untyped-def]
    """The field at a place -> its number, wire type, and the start and end of its content; the end is -1 if damaged."""
    tag, begin = _varint(data, at, end)
    number, wire = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
    stop = -1
    if begin < 0 or number < 1 or number >= 1 << 29:
        return 0, 0, 0, -1
    if wire == 0:
        _, stop = _varint(data, begin, end)
    elif wire == 1:
        stop = begin + 8
    elif wire == 5:
        stop = begin + 4
    elif wire == 2:
        length, begin = _varint(data, begin, end)
        if begin >= 0 and length <= np.uint64(end - begin):
            stop = begin + np.int64(length)
    return number, wire, begin, stop if stop <= end else -1


@borrowing
def _is_name(data, begin, end):  # type: ignore[no-untyped-def]
    if end - begin != len(_NAME):
        return False
    same = True
    for k in range(len(_NAME)):
        same &= data[begin + k] == _NAME[k]
    return same


@borrowing
def _label(data, at, end, most_bytes, name):  # type: ignore[no-untyped-def]
    """Check one label, and put the place of its value into `name` if it is the metric's name."""
    is_name, value_begin, value_end = False, end, end
    while at < end:
        number, wire, begin, at = _field(data, at, end)
        if at < 0 or (number <= 2 and wire != 2):
            return _DAMAGED, SOUND
        if number <= 2 and at - begin > most_bytes:
            return _WHOLE, LONG_LABEL
        if number == 1:
            is_name = _is_name(data, begin, at)
        elif number == 2:
            value_begin, value_end = begin, at
    if is_name:
        name[0], name[1] = value_begin, value_end
    return _WHOLE, SOUND


@borrowing
def _sample(data, at, end):  # type: ignore[no-untyped-def]
    """One sample -> whether it is whole, its time and the bits of its value."""
    time_ms, bits = np.int64(0), np.uint64(0)
    while at < end:
        number, wire, begin, at = _field(data, at, end)
        if at < 0 or (number == 1 and wire != 1) or (number == 2 and wire != 0):
            return False, time_ms, bits
        if number == 1:
            bits = np.uint64(0)
            for k in range(8):
                bits |= np.uint64(data[begin + k]) << np.uint64(8 * k)
        elif number == 2:
            value, _ = _varint(data, begin, at)
            time_ms = np.int64(value)
    return True, time_ms, bits


@borrowing
def _scan(data, most, name, places, problem, series_of, times_ms, bits):  # type: ignore[no-untyped-def]
    """Fill the arrays -> what is wrong with the whole, the number of series, the number of samples."""
    most_labels, most_bytes = most
    at, series, samples = 0, 0, 0
    while at < len(data):
        number, wire, inside, at = _field(data, at, len(data))
        if at < 0 or (number == 1 and wire != 2):
            return _DAMAGED, series, samples
        if number != 1:
            continue
        if series >= len(places):
            return _SERIES, series, samples
        begin, labels_end, labels, wrong = inside, inside, 0, SOUND
        name[0], name[1] = -1, -1
        while inside < at:
            before = inside
            number, wire, content, inside = _field(data, inside, at)
            if inside < 0 or (number <= 2 and wire != 2):
                return _DAMAGED, series, samples
            if number == 1:
                labels += 1
                if before != labels_end:
                    wrong = SCATTERED
                labels_end = inside
                if labels > most_labels:
                    wrong = MANY_LABELS
                else:
                    code, label_problem = _label(data, content, inside, most_bytes, name)
                    if code != _WHOLE:
                        return code, series, samples
                    if label_problem != SOUND:
                        wrong = label_problem
            elif number == 2:
                if samples >= len(times_ms):
                    return _SAMPLES, series, samples
                is_whole, times_ms[samples], bits[samples] = _sample(data, content, inside)
                if not is_whole:
                    return _DAMAGED, series, samples
                series_of[samples] = series
                samples += 1
        if wrong == SOUND and name[0] < 0:
            wrong = NAMELESS
        places[series, 0], places[series, 1] = begin, labels_end
        places[series, 2], places[series, 3] = name[0], name[1]
        problem[series] = wrong
        series += 1
    return _WHOLE, series, samples
