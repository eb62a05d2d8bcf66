"""Words <-> small integer codes, the same code for the same word in all batches of a log."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.jobs import Jobs


class WordCodes:
    """Assigns 0, 1, 2 … in the order of first appearance. Words in `unknown` get -1."""

    def __init__(self, unknown: frozenset[str] = frozenset({""})) -> None:
        self._codes: dict[str, int] = {}
        self._unknown = unknown

    def encode(self, words: Any) -> NDArray[np.float64]:
        """A pyarrow array of strings -> codes."""
        encoded = words.dictionary_encode()
        distinct = [
            -1 if word in self._unknown else self._codes.setdefault(word, len(self._codes))
            for word in encoded.dictionary.to_pylist()
        ]
        return np.array(distinct, dtype=np.float64)[encoded.indices.to_numpy(zero_copy_only=False)]

    @property
    def words(self) -> tuple[str, ...]:
        """The word of each code."""
        return tuple(self._codes)


def words_behind(jobs: Jobs, column: str) -> list[str]:
    """The words that the codes of a column stand for, or the codes if the log has no words; "" for an unknown one."""
    names = jobs.names.get(column)
    codes = getattr(jobs, column).tolist()
    return ["" if code < 0 else names[code] if names else str(code) for code in codes]
