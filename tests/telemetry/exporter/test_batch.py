"""The files of many jobs at once: the same lines as one file at a time."""

from __future__ import annotations

import pytest

from clustertwin.telemetry.exporter.jobs.cgroup_files import FILES, words_of
from clustertwin.telemetry.exporter.jobs.file_batch import FileBatch

PRESSURE = b"some avg10=0.%d0 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n"
EXAMPLES = {
    "cpu.stat": [
        b"usage_usec %d\nuser_usec %d\nsystem_usec %d\nthrottled_usec 0\n" % (3 * i, 2 * i, i) for i in range(4)
    ],
    "memory.current": [b"%d\n" % (4096 * i) for i in range(4)],
    "io.pressure": [PRESSURE % (i, 10**i, i) for i in range(4)],
    "io.stat": [b"8:0 rbytes=%d wbytes=2 rios=1 wios=1\n" % i for i in range(4)],
    "cpuacct.usage_user": [b"%d\n" % (10**9 + i) for i in range(4)],
}
LABELS = [b'jobid="%d"' % i for i in range(4)]
WRITERS = {file.name: file.write for file in reversed(FILES)}  # of two versions of a file, that of cgroup v2


def careful(name: str, texts: list[bytes]) -> list[bytes]:
    rows = [WRITERS[name](words_of(text), labels) for text, labels in zip(texts, LABELS, strict=False)]
    return [b"".join(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_batch_gives_the_lines_of_files_written_one_at_a_time(name):
    batch = FileBatch(WRITERS[name])
    assert batch.lines(EXAMPLES[name], LABELS) == careful(name, EXAMPLES[name])
    later = EXAMPLES[name][::-1]
    assert batch.lines(later, LABELS) == careful(name, later)


def test_the_frame_is_rebuilt_when_jobs_change():
    batch = FileBatch(WRITERS["memory.current"])
    batch.lines([b"1\n", b"2\n"], LABELS[:2])
    assert batch.lines([b"5\n"], [b'jobid="9"']) == [b'twin_job_memory_bytes{jobid="9"} 5\n']


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("cpu.stat", b"usage_usec 1\nuser_usec x\nsystem_usec 1\nthrottled_usec 0\n"),
        ("cpu.stat", b"usage_usec 1\nsystem_usec 1\nuser_usec 1\nthrottled_usec 0\n"),
        ("cpu.stat", b""),
        ("memory.current", b"-5\n"),
        ("io.pressure", b"nonsense\n"),
        ("io.stat", b"8:0 rbytes=1 wbytes=2 rios=1 wios=1\n8:16 rbytes=1 wbytes=2 rios=1 wios=1\n"),
    ],
)
@pytest.mark.parametrize("place", [0, 2])
def test_a_file_of_another_shape_gives_no_batch(name, odd, place):
    texts = list(EXAMPLES[name])
    texts[place] = odd
    assert FileBatch(WRITERS[name]).lines(texts, LABELS) is None
    warm = FileBatch(WRITERS[name])
    warm.lines(EXAMPLES[name], LABELS)
    assert warm.lines(texts, LABELS) is None


def test_a_name_that_looks_like_a_mark_gives_no_batch():
    assert FileBatch(WRITERS["memory.current"]).lines([b"5\n"], [b'jobid="700000000000000000"']) is None
