"""The ring: samples read back, the oldest are dropped, memory is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clustertwin.telemetry.exporter.sample_ring import CHUNK_SAMPLES, SampleRing


def blocks(text: bytes) -> list[tuple[float, bytes]]:
    """The format as a reader takes it: a line `t …` begins a sample."""
    found: list[tuple[float, bytes]] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(b"t "):
            found.append((float(line[2:]), b""))
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def test_a_sample_is_its_time_and_its_lines():
    ring = SampleRing(600)
    ring.add(1000.1234, b"cpu0 1 2 3\njob slurm 42 0-3\n")
    assert b"".join(ring.since(0)) == b"t 1000.123\ncpu0 1 2 3\njob slurm 42 0-3\n"


@given(
    st.lists(
        st.sampled_from([b"cpu0 1 2\n", b"cpu0 9 9\n", b"cpu0 10 2\n", b"cpu0 1 2\njob slurm 1 0\n"]), max_size=100
    )
)
def test_all_that_went_in_comes_out_in_order(samples):
    ring = SampleRing(600)
    for i, lines in enumerate(samples):
        ring.add(1000.0 + i, lines)
    assert blocks(b"".join(ring.since(0))) == [(1000.0 + i, lines) for i, lines in enumerate(samples)]


def test_since_is_inclusive_to_the_millisecond():
    ring = SampleRing(600)
    for i in range(70):
        ring.add(1000.0004 + i, b"cpu0 %d\n" % (i + 100))
    assert [t_s for t_s, _ in blocks(b"".join(ring.since(1067.0)))] == [1067.0, 1068.0, 1069.0]


def test_the_oldest_is_forgotten_and_ten_minutes_are_always_there():
    ring = SampleRing(600)
    for i in range(2000):
        ring.add(float(i), b"cpu0 1\n")
    assert 1999 - 600 - CHUNK_SAMPLES <= ring.begin_s <= 1999 - 600
    assert blocks(b"".join(ring.since(0)))[0][0] == ring.begin_s


def test_memory_is_bounded_whatever_is_added():
    ring = SampleRing(600, max_bytes=20_000)
    for i in range(1000):
        ring.add(1000.0 + i / 100, bytes((i * j) % 251 for j in range(1000)))
    assert ring.size_bytes < 60_000
    assert ring.begin_s > 1000.0


def test_an_empty_ring_has_no_beginning():
    ring = SampleRing(600)
    assert ring.begin_s is None
    assert list(ring.since(0)) == []


def test_a_reader_sees_the_samples_of_its_moment_while_others_are_written():
    ring = SampleRing(600)
    for i in range(40):
        ring.add(float(i), b"cpu0 1\n")
    reading = ring.since(0)
    first = next(reading)
    ring.add(40.0, b"cpu0 2\n")
    assert len(blocks(first + b"".join(reading))) == 40


def test_samples_from_before_the_clock_was_set_back_are_forgotten():
    """They were in every answer, ten minutes of them, until the clock had come there again."""
    ring = SampleRing(600)
    for i in range(3 * CHUNK_SAMPLES):
        ring.add(5000.0 + i, b"cpu0 1\n")
    ring.add(1000.0, b"cpu0 2\n")
    ring.add(1001.0, b"cpu0 3\n")
    ring.add(1000.5, b"cpu0 4\n")  # a small step, as of a time server
    assert [t_s for t_s, _ in blocks(b"".join(ring.since(0)))] == [1000.0, 1001.0, 1000.5]
    assert ring.begin_s == 1000.0
    assert 0 < ring.size_bytes < 200
