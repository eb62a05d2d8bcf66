"""The journal: it ends before an incomplete or damaged record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.telemetry.recording import journal


def records() -> list[journal.JournalRecord]:
    rng = np.random.default_rng(0)
    return [journal.JournalRecord(1000 + 10 * i, rng.integers(0, 256, (2, 3, 5 + i), np.uint8)) for i in range(3)]


def written(tmp_path: Path) -> bytes:
    for record in records():
        journal.append(tmp_path / "journal", record)
    return (tmp_path / "journal").read_bytes()


def agree(read: list[journal.JournalRecord], wrote: list[journal.JournalRecord]) -> bool:
    return len(read) == len(wrote) and all(
        a.start_s == b.start_s and np.array_equal(a.ticks, b.ticks) for a, b in zip(read, wrote, strict=True)
    )


def test_records_read_back_and_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert journal.read(tmp_path / "journal", 2, 3) == []
    written(tmp_path)
    assert agree(journal.read(tmp_path / "journal", 2, 3), records())


def test_a_journal_cut_anywhere_keeps_the_records_before(tmp_path: Path) -> None:
    data = written(tmp_path)
    ends = [50, 106, len(data)]  # a record is 16 bytes of head, 6 a sample, 4 of checksum
    assert ends[-1] == 168
    for length in range(len(data) + 1):
        assert agree(journal.parse(data[:length], 2, 3), records()[: sum(end <= length for end in ends)])


def test_a_flipped_bit_ends_the_journal_there(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path))
    data[60] ^= 1
    assert agree(journal.parse(bytes(data), 2, 3), records()[:1])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    assert len(journal.parse(b"CTJ1" + data, 2, 3)) <= 1
