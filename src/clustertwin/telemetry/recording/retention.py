"""Which chunks to let go: chunks by age and size, and the two limits -> those that must be deleted."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """One node's chunk on disk; ordered oldest first."""

    end_s: int
    node: str
    number: int
    size_bytes: int = field(compare=False)


class Retention:
    """Knows every chunk on disk; says which are too old, or the oldest of too many bytes."""

    def __init__(self, keep_s: int | None, keep_bytes: int | None) -> None:
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._chunks: list[Chunk] = []  # a heap, and what a rewritten chunk was before
        self._sizes: dict[tuple[str, int], int] = {}
        self._latest_s = 0

    def add(self, chunk: Chunk) -> None:
        """A chunk was written, or written again."""
        if (chunk.node, chunk.number) not in self._sizes:
            heapq.heappush(self._chunks, chunk)
        self._sizes[chunk.node, chunk.number] = chunk.size_bytes
        self._latest_s = max(self._latest_s, chunk.end_s)

    def expired(self) -> list[Chunk]:
        """The chunks to delete now, oldest first; they are forgotten here. The newest of all always stays."""
        gone = []
        total = sum(self._sizes.values()) if self._keep_bytes is not None else 0
        while len(self._chunks) > 1:
            oldest = self._chunks[0]
            too_old = self._keep_s is not None and oldest.end_s <= self._latest_s - self._keep_s
            too_much = self._keep_bytes is not None and total > self._keep_bytes
            if not (too_old or too_much):
                break
            gone.append(heapq.heappop(self._chunks))
            total -= self._sizes.pop((oldest.node, oldest.number))
        return gone

    @property
    def oldest_end_s(self) -> int | None:
        return self._chunks[0].end_s if self._chunks else None
