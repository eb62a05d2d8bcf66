"""Keep the samples of the last minutes compressed: (time, lines) -> blocks of text from a given time on.

A block is a line `t <epoch seconds>`, the kernel's own `cpuN …` lines, sample lines of the series behind the node
channels, `job <manager> <id> <cpulist>` lines, and the counters of jobs as in `jobs/job_stats.py`. Consecutive samples
differ in a few digits, so each is stored as its exclusive-or with the one before. That is mostly zeros: zlib's run
lengths shrink it to a twelfth, in half the time that compressing the text would take. A chunk holds half a minute and
can be decompressed alone; the oldest is dropped first.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock

CHUNK_SAMPLES = 30
#: A limit beside the age, so that a node that is scraped more than once a second needs no more memory.
MAX_BYTES = 6_000_000
#: If a sample is this much older than the one before, the clock was set back, and the ring begins again.
SET_BACK_S = 1.0


def _deflate() -> zlib._Compress:
    return zlib.compressobj(level=1, strategy=zlib.Z_RLE)


@dataclass(slots=True)
class RingChunk:
    """One zlib stream of samples. `samples` holds the time and length of each, and whether it is a difference."""

    samples: list[tuple[float, int, bool]] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    stream: zlib._Compress | None = field(default_factory=_deflate)  # None: closed
    previous: int = 0  # the last sample's text as one number, and its length
    previous_length: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.parts))

    def add(self, time_s: float, lines: bytes) -> None:
        assert self.stream is not None
        # A counter that gains a digit shifts the text, so that sample is stored as it is.
        is_difference = len(lines) == self.previous_length
        number = int.from_bytes(lines, "little")
        stored = (number ^ self.previous).to_bytes(len(lines), "little") if is_difference else lines
        self.parts.append(self.stream.compress(stored))
        self.samples.append((time_s, len(lines), is_difference))
        self.previous, self.previous_length = number, len(lines)

    def close(self) -> None:
        if self.stream is not None:
            self.parts = [b"".join(self.parts) + self.stream.flush()]
            self.stream, self.previous = None, 0

    def compressed(self) -> bytes:
        """The whole stream so far; the chunk can still be added to."""
        return b"".join(self.parts) + (self.stream.copy().flush() if self.stream is not None else b"")


def _unpack(samples: list[tuple[float, int, bool]], data: bytes, since_s: float) -> bytes:
    """The text of a chunk's samples at or after `since_s`."""
    plain = zlib.decompress(data)
    begin, lines, blocks = 0, b"", []
    for time_s, length, is_difference in samples:
        piece = plain[begin : begin + length]
        if is_difference:
            number = int.from_bytes(lines, "little") ^ int.from_bytes(piece, "little")
            piece = number.to_bytes(length, "little")
        lines = piece
        begin += length
        if time_s >= since_s:
            blocks.append(b"t %.3f\n%b" % (time_s, lines))
    return b"".join(blocks)


class SampleRing:
    """The samples of the last `seconds`. Different threads may write and read it."""

    def __init__(self, seconds: float, max_bytes: int = MAX_BYTES) -> None:
        self._seconds, self._max_bytes = seconds, max_bytes
        self._chunks: deque[RingChunk] = deque()
        self._closed_bytes = 0
        self._lock = Lock()

    @property
    def begin_s(self) -> float | None:
        """The time of the oldest sample."""
        with self._lock:
            return self._chunks[0].samples[0][0] if self._chunks else None

    @property
    def last_s(self) -> float | None:
        with self._lock:
            return self._chunks[-1].samples[-1][0] if self._chunks else None

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return self._closed_bytes + (self._chunks[-1].size_bytes if self._chunks else 0)

    def add(self, time_s: float, lines: bytes) -> None:
        """Add a sample. Its time is rounded to the millisecond."""
        time_s = round(time_s, 3)
        with self._lock:
            if self._chunks and time_s < self._chunks[-1].samples[-1][0] - SET_BACK_S:
                self._chunks.clear()  # else readers would get these samples until the clock has come there again
                self._closed_bytes = 0
            last = self._chunks[-1] if self._chunks else None
            if last is None or len(last.samples) >= CHUNK_SAMPLES:
                if last is not None:
                    last.close()
                    self._closed_bytes += last.size_bytes
                self._chunks.append(last := RingChunk())
            last.add(time_s, lines)
            while len(self._chunks) > 1 and self._is_over(time_s):
                self._closed_bytes -= self._chunks.popleft().size_bytes

    def since(self, since_s: float) -> Iterator[bytes]:
        """The samples taken at or after `since_s`, oldest first, one chunk at a time to save memory."""
        with self._lock:
            compressed = [
                (list(chunk.samples), chunk.compressed()) for chunk in self._chunks if chunk.samples[-1][0] >= since_s
            ]
        for samples, data in compressed:
            yield _unpack(samples, data, since_s)

    def _is_over(self, now_s: float) -> bool:
        return self._chunks[0].samples[-1][0] < now_s - self._seconds or self._closed_bytes > self._max_bytes
