"""Decide which chunks to delete: chunks by age and size, and the two limits -> those that are over a limit."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

#: A chunk this much later than all others may come from a wrong clock. Its time counts once another is near it.
JUMP_S = 2 * 86_400


@dataclass(frozen=True, slots=True, order=True)
class StoredChunk:
    """A chunk on disk; ordered oldest first."""

    end_s: int
    array: str  # the directory of its array
    number: int
    size_bytes: int = field(compare=False)


class Retention:
    """Knows every chunk on disk, and returns those that are too old, or the oldest if there are too many bytes."""

    def __init__(self, keep_s: int | None, keep_bytes: int | None) -> None:
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._chunks: list[StoredChunk] = []  # a heap; a chunk that was written again keeps its first entry
        self._sizes: dict[tuple[str, int], int] = {}
        self._latest_s = self._before_s = 0  # the two latest ends of chunks

    def add(self, chunk: StoredChunk) -> None:
        """A chunk was written, or written again."""
        if (chunk.array, chunk.number) not in self._sizes:
            heapq.heappush(self._chunks, chunk)
        self._sizes[chunk.array, chunk.number] = chunk.size_bytes
        if chunk.end_s > self._latest_s:
            self._before_s, self._latest_s = self._latest_s, chunk.end_s
        elif self._before_s < chunk.end_s < self._latest_s:
            self._before_s = chunk.end_s

    def expired(self) -> list[StoredChunk]:
        """The chunks to delete now, oldest first; they are dropped from the list. The newest chunk always stays."""
        expired = []
        total = sum(self._sizes.values()) if self._keep_bytes is not None else 0
        is_jump = self._latest_s - self._before_s > JUMP_S
        latest_s = self._before_s if is_jump else self._latest_s
        while len(self._chunks) > 1:
            oldest = self._chunks[0]
            too_old = self._keep_s is not None and oldest.end_s <= latest_s - self._keep_s
            too_much = self._keep_bytes is not None and total > self._keep_bytes
            if not (too_old or too_much):
                break
            expired.append(heapq.heappop(self._chunks))
            total -= self._sizes.pop((oldest.array, oldest.number))
        return expired

    @property
    def oldest_end_s(self) -> int | None:
        return self._chunks[0].end_s if self._chunks else None

    @property
    def arrays(self) -> set[str]:
        """The arrays that have a chunk."""
        return {array for array, _ in self._sizes}
