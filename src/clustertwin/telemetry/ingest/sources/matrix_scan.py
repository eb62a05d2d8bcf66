"""The rows of a long answer of Prometheus, compiled: bytes -> the place of each row's labels, its times and its values.

Only the form that Prometheus and VictoriaMetrics write is read: `{"metric":{…},"values":[[1.5,"2"],…]}`, no blanks. A
row with another number than a plain decimal, such as NaN or one of 17 digits, is marked: it needs a JSON parser. With
plain decimals the values are the same to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled

_METRIC = np.frombuffer(b'{"metric":{', np.uint8)
_VALUES = np.frombuffer(b'},"values":[', np.uint8)
_POWERS = 10.0 ** np.arange(23)  # each is exact
_EXACT = 2**53
_ZERO, _NINE, _MINUS, _DOT, _COMMA, _QUOTE, _OPEN, _CLOSE, _END = (ord(c) for c in '09-.,"[]}')


@dataclass(frozen=True, slots=True)
class ScannedRows:
    places: NDArray[np.int64]  # (row, 4) begin of the row, begin and end of its labels, end of the row
    first: NDArray[np.int64]  # (row + 1,) its first sample
    is_odd: NDArray[np.bool_]  # (row,) its numbers are not read
    times_s: NDArray[np.float64]
    values: NDArray[np.float64]


def scan_rows(body: bytes, begin: int, end: int, rows: int) -> ScannedRows | None:
    """The `rows` rows between two places; None if the bytes have another form."""
    samples = (end - begin) // len('[1,"1"],') + 1  # the most there can be; memory that is not written is not used
    if end >= len(body):  # a number is read up to the byte after it
        return None
    places, first = np.zeros((rows, 4), np.int64), np.zeros(rows + 1, np.int64)
    is_odd = np.zeros(rows, np.bool_)
    times_s, values = np.empty(samples), np.empty(samples)
    text = np.frombuffer(body, np.uint8)
    if not _scan(text, begin, end, places, first, is_odd, times_s, values):
        return None
    count = int(first[rows])
    return ScannedRows(places, first, is_odd, times_s[:count], values[:count])


@compiled
def same_texts(text, begins, ends, known, offsets):  # type: ignore[no-untyped-def]
    """Whether the pieces of a text are the known ones, byte by byte."""
    for i in range(len(begins)):
        length = ends[i] - begins[i]
        if offsets[i + 1] - offsets[i] != length:
            return False
        for k in range(length):
            if text[begins[i] + k] != known[offsets[i] + k]:
                return False
    return True


@compiled
def _is_at(text, at, end, word):  # type: ignore[no-untyped-def]
    if at + len(word) > end:
        return False
    matches = True
    for k in range(len(word)):
        matches &= text[at + k] == word[k]
    return matches


@compiled
def _decimal(text, at, end):  # type: ignore[no-untyped-def]
    """The number at a place -> its value, and the place after it; the same place if it is not a plain decimal."""
    begin = at
    sign = 1.0
    if text[at] == _MINUS:
        sign = -1.0
        at += 1
    mantissa, digits, decimals = 0, 0, 0
    seen_dot = False
    while at < end:
        byte = text[at]
        if _ZERO <= byte <= _NINE:
            if mantissa >= _EXACT // 10 - 1:
                return 0.0, begin
            mantissa = mantissa * 10 + (byte - _ZERO)
            digits += 1
            decimals += seen_dot
        elif byte == _DOT and not seen_dot and digits > 0:
            seen_dot = True
        else:
            break
        at += 1
    if digits == 0 or (seen_dot and decimals == 0) or decimals >= len(_POWERS):
        return 0.0, begin
    return sign * (mantissa / _POWERS[decimals]), at


@compiled
def _scan(text, at, end, places, first, is_odd, times_s, values):  # type: ignore[no-untyped-def]
    """Fill the arrays; False if the bytes have another form."""
    sample = 0
    for row in range(len(places)):
        if not _is_at(text, at, end, _METRIC):
            return False
        places[row, 0], places[row, 1] = at, at + len(_METRIC)
        at += len(_METRIC)
        while at < end and not (text[at] == _END and _is_at(text, at, end, _VALUES)):
            at += 1
        if at >= end:
            return False
        places[row, 2] = at
        at += len(_VALUES)
        first[row] = sample
        while text[at] == _OPEN and at < end:
            if sample >= len(times_s):
                return False
            time_s, after = _decimal(text, at + 1, end)
            is_odd[row] |= after == at + 1
            while after < end and text[after] != _COMMA:
                after += 1
            at = after + 1
            if at >= end or text[at] != _QUOTE:
                return False
            value, after = _decimal(text, at + 1, end)
            is_odd[row] |= after == at + 1 or text[after] != _QUOTE
            while after < end and text[after] != _QUOTE:
                after += 1
            at = after + 1
            if at >= end or text[at] != _CLOSE:
                return False
            times_s[sample], values[sample] = time_s, value
            sample += 1
            at += 1
            if text[at] == _COMMA:
                at += 1
            elif text[at] != _CLOSE:
                return False
        if at >= end or text[at] != _CLOSE or text[at + 1] != _END:
            return False
        at += 2
        places[row, 3] = at
        if at > end:
            return False
        if row + 1 < len(places):
            if text[at] != _COMMA:
                return False
            at += 1
    first[len(places)] = sample
    return at == end
