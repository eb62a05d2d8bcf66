"""The same file of many jobs -> sample lines, with one split and one join: a tenth of the cost of one at a time.

The frame of the text is built by example: the writer of the file is given words in which every number is replaced by
a mark. The positions of the marks in its output are the positions of the kernel's digits. If the files differ in
shape, the caller writes them one at a time.
"""

from __future__ import annotations

import re

from clustertwin.telemetry.exporter.jobs.cgroup_files import Writer, words_of

_FIRST_MARK = 7 * 10**17
_MARK = re.compile(rb"7\d{17}")


class FileBatch:
    """One kind of file. The frame is reused until the jobs change."""

    def __init__(self, write: Writer) -> None:
        self._write = write
        self._labels: list[bytes] = []
        self._width = 0  # words of one file
        self._keys: dict[int, bytes] = {}  # the word before each number that is exposed
        self._frames: list[tuple[list[bytes], list[int]]] = []  # text, number, … text; and the indices of the numbers

    def lines(self, texts: list[bytes], labels: list[bytes]) -> list[bytes] | None:
        """The lines of each family, or None if the files must be written one at a time."""
        words = words_of(b" ".join(texts))  # (job, word), flat
        if labels != self._labels or len(words) != self._width * len(texts):
            self._build(texts, labels)
        if not self._frames or len(words) != self._width * len(texts):
            return None
        for position, key in self._keys.items():
            if words[position - 1 :: self._width] != [key] * len(texts):
                return None
        families = []
        for frame, positions in self._frames:
            for slot, position in enumerate(positions):
                numbers = words[position :: self._width]
                if not b"".join(numbers).isdigit():
                    return None
                frame[2 * slot + 1 :: 2 * len(positions)] = numbers
            families.append(b"".join(frame))
        return families

    def _build(self, texts: list[bytes], labels: list[bytes]) -> None:
        """Build the frames from the words of the first file and the labels of all jobs."""
        words = words_of(texts[0])
        self._labels, self._width, self._frames, self._keys = labels, len(words), [], {}
        if any(map(_MARK.search, labels)):
            return  # the name of a job looks like a mark
        marked = [b"%d" % (_FIRST_MARK + i) if word.isdigit() else word for i, word in enumerate(words)]
        try:
            examples = [self._write(marked, each) for each in labels]  # (job, family)
        except (ValueError, KeyError):
            return
        for family in zip(*examples, strict=True):
            text = b"".join(family)
            positions = [int(mark) - _FIRST_MARK for mark in _MARK.findall(family[0])]
            numbers = [int(mark) - _FIRST_MARK for mark in _MARK.findall(text)]
            if not positions or numbers != positions * len(labels) or max(positions) >= len(words):
                self._frames = []  # the writer adds numbers up, so a mark is lost
                return
            pieces = _MARK.split(text)
            self._frames.append(([part for piece in pieces for part in (piece, b"")][:-1], positions))
            self._keys.update({position: words[position - 1] for position in positions if position})
