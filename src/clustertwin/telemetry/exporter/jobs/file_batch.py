"""The same file of many jobs -> sample lines, in one split and one join: a tenth of the cost of one by one.

The frame of the text is learned by example: the careful writer is given words in which every number is a mark,
and where the marks turn up is where the kernel's own digits go. Files of unequal shape are left to the careful way.
"""

from __future__ import annotations

import re

from clustertwin.telemetry.exporter.jobs.cgroup_files import Writer, words_of

_FIRST_MARK = 7 * 10**17
_MARK = re.compile(rb"7\d{17}")


class Batch:
    """One kind of file. Remembers the frame for as long as the same jobs are there."""

    def __init__(self, write: Writer) -> None:
        self._write = write
        self._labels: list[bytes] = []
        self._width = 0  # words of one file
        self._keys: dict[int, bytes] = {}  # the word before each number that is told
        self._frames: list[tuple[list[bytes], list[int]]] = []  # text, number, … text; and the words they are

    def lines(self, texts: list[bytes], labels: list[bytes]) -> list[bytes] | None:
        """Lines for each family, or None where one by one is the way."""
        words = words_of(b" ".join(texts))  # (job, word), flat
        if labels != self._labels or len(words) != self._width * len(texts):
            self._learn(texts, labels)
        if not self._frames or len(words) != self._width * len(texts):
            return None
        for position, key in self._keys.items():
            if words[position - 1 :: self._width] != [key] * len(texts):
                return None
        told = []
        for frame, positions in self._frames:
            for slot, position in enumerate(positions):
                numbers = words[position :: self._width]
                if not b"".join(numbers).isdigit():
                    return None
                frame[2 * slot + 1 :: 2 * len(positions)] = numbers
            told.append(b"".join(frame))
        return told

    def _learn(self, texts: list[bytes], labels: list[bytes]) -> None:
        """Make the frames from the first file's words and everyone's labels."""
        words = words_of(texts[0])
        self._labels, self._width, self._frames, self._keys = labels, len(words), [], {}
        if any(map(_MARK.search, labels)):
            return  # a job's name that looks like a mark
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
                self._frames = []  # a sum of marks is none
                return
            pieces = _MARK.split(text)
            self._frames.append(([part for piece in pieces for part in (piece, b"")][:-1], positions))
            self._keys.update({position: words[position - 1] for position in positions if position})
