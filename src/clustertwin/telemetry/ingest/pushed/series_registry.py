"""Which pushed series is which: the bytes of its labels and its sender -> a number, compiled.

A sender repeats the labels of every series in every request. So they are compared as bytes, and parsed once. The hash
is seeded, so that a sender cannot choose labels that fall together.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import borrowing
from clustertwin.telemetry.ingest.pushed.write_request import SOUND, WriteSeries

#: Numbers of series that have none: its metric is not wanted, or it is not known yet.
UNWANTED, UNKNOWN = -1, -2


class SeriesRegistry:
    def __init__(self, wanted: tuple[str, ...], most_series: int, most_bytes: int) -> None:
        self.most_series, self.most_bytes = most_series, most_bytes
        names = sorted(name.encode() for name in wanted)
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._name_ends = np.cumsum([len(name) for name in names])
        self._seed = np.uint64(secrets.randbits(63) | 1)
        self._count, self._used_bytes = 0, 0
        self._table = np.full(1 << 12, -1, np.int32)  # open addressing, at most half full
        self._hash = np.zeros(1 << 10, np.uint64)
        self._sender = np.zeros(1 << 10, np.int32)
        self._ends = np.zeros((1 << 10) + 1, np.int64)  # labels of series i: ends[i] to ends[i + 1]
        self._labels = np.zeros(1 << 16, np.uint8)

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= self.most_series or self._used_bytes >= self.most_bytes

    @property
    def senders(self) -> NDArray[np.int32]:
        """(series,) the number of the sender of each."""
        return self._sender[: self._count]

    def find(self, request: WriteSeries, sender: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """The number of each series of a request, and its hash."""
        numbers, hashes = np.empty(len(request.places), np.int64), np.empty(len(request.places), np.uint64)
        wanted = (self._names, self._name_ends)
        known = (self._table, self._hash, self._sender, self._ends, self._labels)
        _find(request.data, request.places, request.problem, wanted, known, (sender, self._seed), numbers, hashes)
        return numbers, hashes

    def find_one(self, labels: bytes, sender: int, hashed: np.uint64) -> int:
        """The number of a series by the bytes of its labels, or UNKNOWN."""
        at = int(hashed) & len(self._table) - 1
        while (number := int(self._table[at])) >= 0:
            same = self._hash[number] == hashed and self._sender[number] == sender
            if same and self.labels(number) == labels:
                return number
            at = (at + 1) & len(self._table) - 1
        return UNKNOWN

    def add(self, labels: bytes, sender: int, hashed: np.uint64) -> int:
        """A number for a new series. The caller has checked that there is room, and that the series is not known."""
        number, begin = self._count, self._used_bytes
        end = begin + len(labels)
        if number == len(self._hash):
            self._hash, self._sender = np.tile(self._hash, 2), np.tile(self._sender, 2)
            self._ends = np.append(self._ends, np.zeros(number, np.int64))
        if end > len(self._labels):
            self._labels = np.append(self._labels, np.zeros(max(len(self._labels), len(labels)), np.uint8))
        self._labels[begin:end] = np.frombuffer(labels, np.uint8)
        self._hash[number], self._sender[number], self._ends[number + 1] = hashed, sender, end
        self._count, self._used_bytes = number + 1, end
        if 2 * self._count > len(self._table):
            self._table = np.full(2 * len(self._table), -1, np.int32)
            _fill(self._table, self._hash[: self._count])
        else:
            _place(self._table, hashed, number)
        return number

    def labels(self, number: int) -> bytes:
        return self._labels[self._ends[number] : self._ends[number + 1]].tobytes()

    def keep(self, kept: NDArray[np.intp]) -> None:
        """Forget all series but these, whose numbers become their places among these."""
        self._count, self._used_bytes = len(kept), int(_pack(self._labels, self._ends, kept))
        self._hash[: len(kept)], self._sender[: len(kept)] = self._hash[kept], self._sender[kept]
        self._table.fill(-1)
        _fill(self._table, self._hash[: self._count])


@borrowing
def _hash_of(data, begin, end, seed):  # type: ignore[no-untyped-def]
    hashed = seed
    while begin < end:
        word = np.uint64(0)
        for k in range(min(8, end - begin)):
            word |= np.uint64(data[begin + k]) << np.uint64(8 * k)
        hashed = (hashed ^ word) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
        begin += 8
    return hashed


@borrowing
def _pack(labels, ends, kept):  # type: ignore[no-untyped-def]
    """Move the labels of the kept series, whose numbers ascend, to the front -> the bytes that they take."""
    at = 0
    for i in range(len(kept)):
        begin, end = ends[kept[i]], ends[kept[i] + 1]
        for k in range(begin, end):
            labels[at + k - begin] = labels[k]
        at += end - begin
        ends[i + 1] = at
    return at


@borrowing
def _place(table, hashed, number):  # type: ignore[no-untyped-def]
    mask = len(table) - 1
    at = np.int64(hashed & np.uint64(mask))
    while table[at] >= 0:
        at = (at + 1) & mask
    table[at] = number


@borrowing
def _fill(table, hashes):  # type: ignore[no-untyped-def]
    for number in range(len(hashes)):
        _place(table, hashes[number], number)


@borrowing
def _is_wanted(data, begin, end, names, ends):  # type: ignore[no-untyped-def]
    first = 0
    for i in range(len(ends)):
        if ends[i] - first == end - begin:
            same = True
            for k in range(end - begin):
                if data[begin + k] != names[first + k]:
                    same = False
                    break
            if same:
                return True
        first = ends[i]
    return False


@borrowing
def _find(data, places, problem, wanted, known, sent, numbers, hashes):  # type: ignore[no-untyped-def]
    names, name_ends = wanted
    table, known_hashes, senders, ends, labels = known
    sender, seed = sent
    mask = len(table) - 1
    for i in range(len(places)):
        numbers[i], hashes[i] = UNWANTED, np.uint64(0)
        if problem[i] != SOUND:
            continue
        begin, end = places[i, 0], places[i, 1]
        hashed = _hash_of(data, begin, end, seed ^ np.uint64(sender))
        hashes[i] = hashed
        found = UNKNOWN
        at = np.int64(hashed & np.uint64(mask))
        while table[at] >= 0 and found == UNKNOWN:
            number = table[at]
            at = (at + 1) & mask
            if known_hashes[number] != hashed or senders[number] != sender:
                continue
            same = ends[number + 1] - ends[number] == end - begin
            if same:
                for k in range(end - begin):
                    if data[begin + k] != labels[ends[number] + k]:
                        same = False
                        break
            if same:
                found = number
        if found == UNKNOWN and not _is_wanted(data, places[i, 2], places[i, 3], names, name_ends):
            found = UNWANTED
        numbers[i] = found
