"""Words -> small codes, the same for the same word through all batches of a log."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Codes:
    """Counts up from 0 in the order words first appear; words that mean nobody (`unknown`) are -1."""

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
        return tuple(self._codes)
